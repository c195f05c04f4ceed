// SPDX-License-Identifier: Apache-2.0
//! Commands that people are told to type.

/// A path as a shell takes it for one word.
pub(super) fn typed(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    match path.chars().all(is_plain) && !path.starts_with('-') {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_path_for_one_word() {
        for path in [
            "/data/train.log",
            "/my log",
            "/it's",
            "/$HOME `x` \"y\" \\",
            "/a*;b",
            "-n",
        ] {
            let script = format!("printf %s {}", typed(path));
            let said = std::process::Command::new("sh").args(["-c", &script]).output();
            assert_eq!(String::from_utf8_lossy(&said.expect("started").stdout), path);
        }
        assert_eq!(typed("/data/train.log"), "/data/train.log");
    }
}
