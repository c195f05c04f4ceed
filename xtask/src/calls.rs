// SPDX-License-Identifier: Apache-2.0
//! Circles of calls: methods of one type that call one another over its files, which the imports do not show.
//!
//! A type whose methods stand in many files has no walls inside: each method may call each other one. Counted are the
//! files in the greatest circle of such calls, for types with methods in at least [`MANY`] files of the product.

use std::collections::{BTreeMap, BTreeSet};

use crate::listed::Fault;
use crate::source::{Kind, Token, closing, tokens, without_tests};
use crate::tree::File;

/// Files with methods of a type from which on it is counted.
const MANY: usize = 5;

/// A type of one crate and its methods.
#[derive(Default)]
pub struct Methods {
    /// The file of each method, its calls of others, and whether it may write.
    by_name: BTreeMap<String, Method>,
}

struct Method {
    path: String,
    calls: BTreeSet<String>,
    is_writer: bool,
}

impl Methods {
    fn files(&self) -> BTreeSet<&str> {
        self.by_name.values().map(|method| method.path.as_str()).collect()
    }

    /// What each file of the type calls in others of it.
    fn file_arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for method in self.by_name.values() {
            let called = method.calls.iter().filter_map(|name| self.by_name.get(name));
            let others = called
                .map(|other| other.path.as_str())
                .filter(|path| *path != method.path);
            arrows.entry(&method.path).or_default().extend(others);
        }
        arrows
    }

    fn method_arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let called = |method: &'_ Method| -> BTreeSet<&str> {
            let known = method.calls.iter().filter_map(|name| self.by_name.get_key_value(name));
            known.map(|(name, _)| name.as_str()).collect()
        };
        let rows = self.by_name.iter();
        rows.map(|(name, method)| (name.as_str(), called(method))).collect()
    }
}

/// The methods of each type, by `crate folder` and name, that has some in at least [`MANY`] files.
pub fn types(files: &[File]) -> BTreeMap<(String, String), Methods> {
    let mut found: BTreeMap<(String, String), Methods> = BTreeMap::new();
    let is_product = |file: &&File| {
        let is_test = ["cuda-tests/", "simulator/", "xtask/"]
            .iter()
            .any(|start| file.path.starts_with(start));
        file.path.ends_with(".rs") && file.path.contains("/src/") && !is_test
    };
    for file in files.iter().filter(is_product) {
        let all = tokens(&file.text);
        let product = without_tests(&all);
        let crate_folder = file.path.split("/src/").next().unwrap_or_default().to_owned();
        for (name, body) in inherent_impls(&product) {
            let methods = found.entry((crate_folder.clone(), name.to_owned())).or_default();
            for (method, tokens) in methods_of(body) {
                let method_of = Method {
                    path: file.path.clone(),
                    calls: calls(tokens),
                    is_writer: writes(tokens),
                };
                methods.by_name.insert(method.to_owned(), method_of);
            }
        }
    }
    found.retain(|_, methods| methods.files().len() >= MANY);
    found
}

/// `impl Name { … }` and `impl<…> Name<…> { … }`: the name and what stands in the braces. No trait's.
fn inherent_impls<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<(&'a str, &'b [Token<'a>])> {
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at].text == "impl") {
        let Some(open) = (at..tokens.len()).find(|i| ["{", ";"].contains(&tokens[*i].text)) else {
            continue;
        };
        let head = &tokens[at + 1..open];
        let is_block = at == 0 || ["}", "]", ";", "{"].contains(&tokens[at - 1].text);
        if !is_block || head.iter().any(|token| token.text == "for") || tokens[open].text != "{" {
            continue;
        }
        let mut depth = 0;
        let name = head.iter().find(|token| {
            match token.text {
                "<" => depth += 1,
                ">" => depth -= 1,
                _ => {}
            }
            depth == 0 && token.kind == Kind::Word
        });
        if let (Some(name), Some(end)) = (name, closing(tokens, open)) {
            found.push((name.text, &tokens[open..=end]));
        }
    }
    found
}

/// Name and tokens, from the name to the last brace, of each function of an `impl`.
fn methods_of<'a, 'b>(body: &'b [Token<'a>]) -> Vec<(&'a str, &'b [Token<'a>])> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 1 < body.len() {
        if body[at].text != "fn" {
            at += 1;
            continue;
        }
        let open = (at..body.len()).find(|i| ["{", ";"].contains(&body[*i].text));
        let end = open.and_then(|open| closing(body, open));
        let Some(end) = end else { break };
        found.push((body[at + 1].text, &body[at + 1..=end]));
        at = end;
    }
    found
}

/// `self.name(` and `Self::name(`.
fn calls(tokens: &[Token<'_>]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for run in tokens.windows(4) {
        let is_own = (run[0].text == "self" && run[1].text == ".") || (run[0].text == "Self" && run[1].text == "::");
        // A turbofish stands before the bracket.
        if is_own && run[2].kind == Kind::Word && ["(", "::"].contains(&run[3].text) {
            found.insert(run[2].text.to_owned());
        }
    }
    found
}

/// Does the method take `&mut self` or `self`?
fn writes(tokens: &[Token<'_>]) -> bool {
    let until = tokens
        .iter()
        .position(|token| token.text == "{")
        .unwrap_or(tokens.len());
    let head = &tokens[..until];
    let at = head.iter().position(|token| token.text == "self");
    at.is_some_and(|at| at > 0 && head[at - 1].text != "&")
}

/// The greatest set of keys that all reach one another; of one alone nothing.
pub fn greatest_circle<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|key| (*key, reached(arrows, key))).collect();
    let circle_of = |key: &str| -> BTreeSet<&'a str> {
        let back = reach[key]
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|set| set.contains(key)));
        back.copied().collect()
    };
    let circles = arrows.keys().map(|key| circle_of(key));
    circles
        .filter(|circle| circle.len() > 1)
        .max_by_key(BTreeSet::len)
        .unwrap_or_default()
}

fn reached<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>, key: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left = vec![key];
    while let Some(here) = left.pop() {
        for next in arrows.get(here).into_iter().flatten() {
            if found.insert(*next) {
                left.push(next);
            }
        }
    }
    found
}

/// What may only become less: for each such type its files, writers, and circles of calls.
pub fn faults(files: &[File]) -> Vec<Fault> {
    let mut found = Vec::new();
    for ((folder, name), methods) in types(files) {
        let subject = format!("{folder} {name}");
        let circle = greatest_circle(&methods.file_arrows());
        let in_circle = greatest_circle(&methods.method_arrows());
        let writers = methods.by_name.values().filter(|method| method.is_writer).count();
        let rows = [
            (
                "impl-in-files",
                methods.files().len(),
                "let a part of the type be a type of its own, in a folder of its own".to_owned(),
            ),
            (
                "writers",
                writers,
                "let what only reads stand where it cannot write".to_owned(),
            ),
            ("circle-of-calls", circle.len(), format!("files: {}", join(&circle))),
            (
                "circle-of-methods",
                in_circle.len(),
                format!("methods: {}", join(&in_circle)),
            ),
        ];
        let rows = rows.into_iter().filter(|(_, count, _)| *count > 0);
        found.extend(rows.map(|(rule, count, what)| Fault {
            rule,
            subject: subject.clone(),
            count,
            what,
        }));
    }
    found
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

/// A table of these types, to read.
pub fn print(files: &[File]) -> String {
    let mut text =
        String::from("type                                methods  writers  files  circle: files, methods\n");
    for ((folder, name), methods) in types(files) {
        let writers = methods.by_name.values().filter(|method| method.is_writer).count();
        let (files, within) = (
            greatest_circle(&methods.file_arrows()).len(),
            greatest_circle(&methods.method_arrows()).len(),
        );
        text += &format!(
            "{:35} {:7}  {writers:7}  {:5}  {files:13}, {within:7}\n",
            format!("{folder} {name}"),
            methods.by_name.len(),
            methods.files().len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(bodies: [&str; 5]) -> Vec<File> {
        let file = |(i, body): (usize, &str)| File {
            path: format!("x/src/f{i}.rs"),
            text: format!("impl Big {{ {body} }} #[cfg(test)] mod tests {{ impl Big {{ fn t(&mut self) {{}} }} }}"),
        };
        bodies.into_iter().enumerate().map(file).collect()
    }

    fn counts(bodies: [&str; 5]) -> Vec<(&'static str, usize)> {
        faults(&tree(bodies))
            .into_iter()
            .map(|fault| (fault.rule, fault.count))
            .collect()
    }

    #[test]
    fn calls_in_one_direction_are_no_circle() {
        let found = counts([
            "pub fn a(&mut self) { self.b(); }",
            "fn b(&self) { Self::c(); }",
            "fn c() {}",
            "fn d<M: Machine>(&mut self, m: &M) { self.e::<M>(m) }",
            "fn e<M>(&self, m: &M) {}",
        ]);
        assert_eq!(found, [("impl-in-files", 5), ("writers", 2)]);
    }

    #[test]
    fn a_call_back_makes_a_circle_of_files_and_of_methods() {
        let files_alone = counts([
            "fn a(&self) { self.b(); } fn a2(&self) {}",
            "fn b(&self) { self.a2(); }",
            "fn c(&self) {}",
            "fn d(&self) {}",
            "fn e(&self) {}",
        ]);
        assert_eq!(files_alone, [("impl-in-files", 5), ("circle-of-calls", 2)]);
        let both = counts([
            "fn a(&self) { self.b(); }",
            "fn b(&self) { self.c(); }",
            "fn c(&self) { self.a(); }",
            "fn d(&self) {}",
            "fn e(&self) {}",
        ]);
        let all = [("impl-in-files", 5), ("circle-of-calls", 3), ("circle-of-methods", 3)];
        assert_eq!(both, all);
    }

    #[test]
    fn a_trait_and_a_type_in_few_files_are_not_counted() {
        let file = |i: usize| File {
            path: format!("x/src/f{i}.rs"),
            text: "impl Show for Big { fn a(&mut self) {} } impl Small { fn a(&self) {} }".to_owned(),
        };
        let few: Vec<_> = (0..MANY - 1).map(file).collect();
        assert!(faults(&few).is_empty());
    }
}
