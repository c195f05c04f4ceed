// SPDX-License-Identifier: Apache-2.0
//! Import circles: files of one crate of which each names, over others or at once, what each other declares.
//!
//! Such files can be read, tested and moved only together.

use std::collections::{BTreeMap, BTreeSet};

use crate::calls::greatest_circle;
use crate::modules::{Arrows, arrows};
use crate::tree::File;

/// The circles of one crate root.
pub struct Circles {
    /// The root: `broker/src/lib.rs`.
    pub root: String,
    /// How many files the crate has.
    pub files: usize,
    /// Each circle's files, the greatest first.
    pub circles: Vec<BTreeSet<String>>,
    arrows: Arrows,
}

impl Circles {
    /// The shortest way from `path` back to itself, as a line: `a.rs:3 -> b.rs:9 -> a.rs`.
    pub fn way_back(&self, path: &str) -> String {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([path]);
        while let Some(here) = queue.pop_front() {
            for next in self.arrows.get(here).into_iter().flat_map(BTreeMap::keys) {
                if next == path {
                    let mut way = vec![here];
                    while let Some(before) = came_from.get(way[way.len() - 1]) {
                        way.push(before);
                    }
                    way.reverse();
                    return self.line_of(&way);
                }
                if !came_from.contains_key(next.as_str()) {
                    came_from.insert(next, here);
                    queue.push_back(next);
                }
            }
        }
        path.to_owned()
    }

    /// The greatest circle of rooms: folders, or files beside them, at the top of the crate.
    pub fn rooms(&self) -> BTreeSet<String> {
        let top = self.root.rsplit_once('/').map_or("", |(folder, _)| folder).len() + 1;
        let room = |path: &'_ str| -> String {
            let within = path.get(top..).unwrap_or(path);
            let first = within.split('/').next().unwrap_or(within);
            first.trim_end_matches(".rs").to_owned()
        };
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, named) in self.arrows.iter().filter(|(path, _)| **path != self.root) {
            let others = named
                .keys()
                .filter(|other| **other != self.root)
                .map(|other| room(other));
            let from = room(path);
            let others: Vec<_> = others.filter(|other| *other != from).collect();
            names.entry(from).or_default().extend(others);
        }
        let arrows = names
            .iter()
            .map(|(from, to)| (from.as_str(), to.iter().map(String::as_str).collect()));
        greatest_circle(&arrows.collect())
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    fn line_of(&self, way: &[&str]) -> String {
        let folder = self.root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let short = |path: &'_ str| {
            path.strip_prefix(folder)
                .unwrap_or(path)
                .trim_start_matches('/')
                .to_owned()
        };
        let mut line = String::new();
        for (i, path) in way.iter().enumerate() {
            let next = way[(i + 1) % way.len()];
            let at = self.arrows.get(*path).and_then(|named| named.get(next)).unwrap_or(&0);
            line += &format!("{}:{at} -> ", short(path));
        }
        line + &short(way[0])
    }
}

/// The circles of every crate among `files`.
pub fn circles(files: &[File]) -> Vec<Circles> {
    let by_path = files.iter().map(|file| (file.path.as_str(), file)).collect();
    roots(files).into_iter().map(|root| of_root(&by_path, root)).collect()
}

/// The arrows of every crate, together.
pub fn all_arrows(circles: &[Circles]) -> Arrows {
    circles.iter().flat_map(|one| one.arrows.clone()).collect()
}

/// The roots of the packages' libraries and programs.
fn roots(files: &[File]) -> Vec<&str> {
    let packages: BTreeSet<_> = files
        .iter()
        .filter_map(|file| file.path.strip_suffix("Cargo.toml"))
        .collect();
    let is_root = |path: &str| {
        packages.iter().any(|package| {
            path.strip_prefix(package).is_some_and(|rest| {
                let program = rest.strip_prefix("src/bin/").is_some_and(|name| !name.contains('/'));
                rest == "src/lib.rs" || rest == "src/main.rs" || program
            })
        })
    };
    let paths = files.iter().map(|file| file.path.as_str());
    paths.filter(|path| path.ends_with(".rs") && is_root(path)).collect()
}

fn of_root(files: &BTreeMap<&str, &File>, root: &str) -> Circles {
    let arrows = arrows(files, root);
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|path| (path.as_str(), reached(&arrows, path)))
        .collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (path, others) in &reach {
        if !others.contains(path) || circles.iter().any(|circle| circle.contains(*path)) {
            continue;
        }
        let together = others.iter().filter(|other| reach[**other].contains(path));
        circles.push(together.map(|other| (*other).to_owned()).collect());
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    Circles {
        root: root.to_owned(),
        files: arrows.len(),
        circles,
        arrows,
    }
}

/// The files that `path` names, over others or at once.
fn reached<'a>(arrows: &'a Arrows, path: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left = vec![path];
    while let Some(here) = left.pop() {
        for next in arrows.get(here).into_iter().flat_map(BTreeMap::keys) {
            if arrows.contains_key(next) && found.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(sources: &[(&str, &str)]) -> Vec<File> {
        let file = |(path, text): (&str, &str)| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        std::iter::once(("x/Cargo.toml", ""))
            .chain(sources.iter().copied())
            .map(file)
            .collect()
    }

    fn found(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
        let circles = circles(&tree(sources)).into_iter().flat_map(|crate_| crate_.circles);
        circles.map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn rooms_that_name_one_another_are_a_circle_though_no_file_does() {
        let sources = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a/mod.rs", "mod one; mod two;"),
            ("x/src/a/one.rs", "use crate::b::f;"),
            ("x/src/a/two.rs", "pub fn g() {}"),
            ("x/src/b.rs", "use crate::c::h; pub fn f() {}"),
            ("x/src/c.rs", "use crate::a::two::g; pub fn h() {}"),
        ];
        let crate_ = circles(&tree(&sources)).remove(0);
        assert!(crate_.circles.is_empty());
        assert_eq!(Vec::from_iter(crate_.rooms()), ["a", "b", "c"]);
    }

    #[test]
    fn files_that_name_each_other_are_a_circle_however_the_path_is_written() {
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::A;"),
            ("use super::b::{self, B};", "fn f() { crate::a::g(); }"),
            ("use crate::b; fn f() { b::g(); }", "use crate::{a::{A, C}, a};"),
            ("fn f(x: super::b::B) {}", "macro_rules! m { () => { $crate::a::g() } }"),
            (
                "use crate::B as Other; struct A;",
                "use crate::*; struct B; fn f(a: A) {}",
            ),
            (
                "mod inner { use super::super::b::B; }",
                "pub use crate::a::A; fn f(a: A) {}",
            ),
        ] {
            let root = "mod a; mod b; use a::A; pub use b::B;";
            let circles = found(&[("x/src/lib.rs", root), ("x/src/a.rs", a), ("x/src/b.rs", b)]);
            assert_eq!(circles, [["x/src/a.rs", "x/src/b.rs"]], "{a} / {b}");
        }
    }

    #[test]
    fn arrows_in_one_direction_are_none() {
        for (a, b) in [
            ("use crate::b::B;", "use std::fmt; struct B;"),
            ("use crate::b;", "use crate::a::A;"),
            ("use crate::b::B;", "#[cfg(test)] mod tests { use crate::a::A; }"),
            ("use crate::b::B;", "// crate::a::A\nconst S: &str = \"crate::a::A\";"),
            (
                "use crate::b::B;",
                "use other::a::A; fn f() { x.a::<u8>(); Self::a(); }",
            ),
            ("pub use crate::b::B;", "use crate::a::A;"),
        ] {
            let circles = found(&[("x/src/main.rs", "mod a; mod b;"), ("x/src/a.rs", a), ("x/src/b.rs", b)]);
            assert!(circles.is_empty(), "{a} / {b}: {circles:?}");
        }
    }

    #[test]
    fn text_that_is_no_rust_ends_the_reading() {
        for a in [
            "use crate::{b; fn f() {}",
            "use crate::b::{",
            "use",
            "mod x {",
            "fn f( {",
            "use b::{<<<<<<< HEAD, =};",
        ] {
            let sources = [("x/src/lib.rs", "mod a; mod b;"), ("x/src/a.rs", a), ("x/src/b.rs", "")];
            assert!(found(&sources).is_empty(), "{a}");
        }
    }

    #[test]
    fn an_index_is_in_no_circle_with_what_it_re_exports() {
        let index = "mod c; pub use c::C; pub mod d;";
        let sources = [
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a/mod.rs", index),
            ("x/src/a/c.rs", "pub struct C; use super::d::D;"),
            ("x/src/a/d.rs", "pub struct D; "),
        ];
        assert!(found(&sources).is_empty());
        // Through the index the name leads to its file.
        let mut round = sources;
        round[3].1 = "pub struct D; use super::C;";
        assert_eq!(found(&round), [["x/src/a/c.rs", "x/src/a/d.rs"]]);
        // And an index that does something is a file as any other.
        let mut working = sources;
        working[1].1 = "mod c; use c::C; pub mod d; pub fn f(c: C) {}";
        working[2].1 = "pub struct C; fn g() { super::f(); }";
        assert_eq!(found(&working), [["x/src/a/c.rs", "x/src/a/mod.rs"]]);
    }

    #[test]
    fn the_shortest_way_back_names_its_lines() {
        let files = tree(&[
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "\nuse crate::b::B;"),
            ("x/src/b.rs", "\n\nuse crate::{c::C, a::A};"),
            ("x/src/c.rs", "use crate::a::A;"),
        ]);
        let all = circles(&files);
        assert_eq!(all[0].circles[0].len(), 3);
        assert_eq!(all[0].way_back("x/src/a.rs"), "a.rs:2 -> b.rs:3 -> a.rs");
    }
}
