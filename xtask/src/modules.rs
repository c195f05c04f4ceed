// SPDX-License-Identifier: Apache-2.0
//! Which file of a crate names what is declared in which other file, tests left out.
//!
//! A path is followed as the compiler does: through modules, then through the `use` that brings a name into a module,
//! so a name that an index re-exports leads to the file that declares it. A `use` of a module is no arrow by itself;
//! the paths that begin with it are. What types alone would tell is not seen: a method of a type that came from
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Kind, Token, closing, tokens, without_tests};
use crate::tree::File;

/// Who names whom: for each file of a crate the files whose items it names, with the line of the first path.
pub type Arrows = BTreeMap<String, BTreeMap<String, usize>>;

/// The arrows between the files below the crate root `root`, which is one of `files`.
pub fn arrows(files: &BTreeMap<&str, &File>, root: &str) -> Arrows {
    let mut tree = Tree::default();
    tree.read(files, root, Vec::new(), folder_of(root).to_owned());
    let mut found = Arrows::new();
    for source in &tree.sources {
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        for reference in source.references(&tree) {
            if let Some(path) = tree.file_of(&reference.path, 0)
                && path != source.path
            {
                named.entry(path.to_owned()).or_insert(reference.line);
            }
        }
        found.insert(source.path.clone(), named);
    }
    found
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// One path of the crate, from its root.
struct Reference {
    path: Vec<String>,
    line: usize,
}

/// One name that a `use` brings into a module.
#[derive(Clone)]
struct Binding {
    name: String,
    path: Vec<String>,
    line: usize,
    is_public: bool,
}

/// What one module of the crate has; a file has one or, with modules between braces, several.
#[derive(Default)]
struct Module {
    file: String,
    names: BTreeSet<String>,
    bindings: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// One file of the crate.
struct Source<'a> {
    path: String,
    module: Vec<String>,
    tokens: Vec<Token<'a>>,
}

#[derive(Default)]
struct Tree<'a> {
    modules: BTreeMap<Vec<String>, Module>,
    sources: Vec<Source<'a>>,
    /// Macros of `#[macro_export]`, which the crate's root has wherever they are declared.
    macros: BTreeMap<String, String>,
}

impl<'a> Tree<'a> {
    /// Reads the file `path`, which is `module`, and the files that it declares as modules in `folder`.
    fn read(&mut self, files: &BTreeMap<&str, &'a File>, path: &str, module: Vec<String>, folder: String) {
        let Some(file) = files.get(path) else {
            return;
        };
        let all = tokens(&file.text);
        let source = Source {
            path: path.to_owned(),
            module: module.clone(),
            tokens: without_tests(&all),
        };
        let mut declared = Vec::new();
        source.walk(|at, inner| {
            let entry = self.modules.entry(inner.to_vec()).or_insert_with(|| Module {
                file: path.to_owned(),
                ..Module::default()
            });
            let text = |i: usize| source.text(at + i);
            if text(0) == "mod" && text(2) == ";" {
                declared.push((inner.to_vec(), text(1).to_owned()));
            }
            if is_declaration(text(0)) && source.tokens.get(at + 1).is_some_and(|token| token.kind == Kind::Word) {
                entry.names.insert(text(1).to_owned());
            }
            if text(0) == "macro_rules" && text(1) == "!" {
                entry.names.insert(text(2).to_owned());
                let is_exported = at >= 2 && source.text(at - 2) == "macro_export";
                if is_exported {
                    self.macros.insert(text(2).to_owned(), path.to_owned());
                }
            }
        });
        for binding in source.bindings() {
            let (inner, binding) = binding;
            let Some(entry) = self.modules.get_mut(&inner) else {
                continue;
            };
            if binding.name == "*" {
                entry.globs.push(binding.path);
            } else if binding.path.last() != Some(&binding.name) || binding.path.len() > 1 {
                entry.bindings.insert(binding.name, binding.path);
            }
        }
        self.sources.push(source);
        for (inner, name) in declared {
            let mut here = folder.clone();
            for part in &inner[module.len()..] {
                here = format!("{here}/{part}");
            }
            let child: Vec<String> = inner.iter().chain([&name]).cloned().collect();
            let inside = format!("{here}/{name}");
            let path = [format!("{inside}.rs"), format!("{inside}/mod.rs")]
                .into_iter()
                .find(|path| files.contains_key(path.as_str()));
            if let Some(path) = path {
                self.read(files, &path, child, inside);
            }
        }
    }

    /// The path from the root that `path`, as it is written in `module`, means; none for other crates and for local
    /// names.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child: Vec<String> = module
                    .iter()
                    .map(String::as_str)
                    .chain([first])
                    .map(str::to_owned)
                    .collect();
                let here = self.modules.get(module)?;
                let is_bound = here.bindings.contains_key(first) || here.names.contains(first);
                if !self.modules.contains_key(&child) && !is_bound {
                    return None;
                }
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The file that declares what `path`, from the root, names; none when it is no file of this crate or a module as
    /// such.
    fn file_of(&self, path: &[String], depth: usize) -> Option<&str> {
        // A name that is brought in by itself would be followed for ever.
        if depth > 16 {
            return None;
        }
        let mut here: Vec<String> = Vec::new();
        for (i, part) in path.iter().enumerate() {
            let module = self.modules.get(&here)?;
            let child: Vec<String> = here.iter().chain([part]).cloned().collect();
            if self.modules.contains_key(&child) {
                here = child;
                continue;
            }
            if let Some(bound) = module.bindings.get(part) {
                let mut full = self.absolute(&here, bound)?;
                full.extend(path[i + 1..].iter().cloned());
                return self.file_of(&full, depth + 1);
            }
            if module.names.contains(part) {
                return Some(&module.file);
            }
            if here.is_empty()
                && let Some(file) = self.macros.get(part)
            {
                return Some(file);
            }
            for glob in &module.globs {
                let Some(mut full) = self.absolute(&here, glob) else {
                    continue;
                };
                if full == here || !self.has(&full, part) {
                    continue;
                }
                full.extend(path[i..].iter().cloned());
                return self.file_of(&full, depth + 1);
            }
            return Some(&module.file);
        }
        None
    }

    /// True when the module `path` declares, contains or brings in `name`.
    fn has(&self, path: &[String], name: &str) -> bool {
        let child: Vec<String> = path
            .iter()
            .map(String::as_str)
            .chain([name])
            .map(str::to_owned)
            .collect();
        let declares = |module: &Module| module.names.contains(name) || module.bindings.contains_key(name);
        self.modules.contains_key(&child) || self.modules.get(path).is_some_and(declares)
    }
}

fn is_declaration(word: &str) -> bool {
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static"].contains(&word)
}

impl Source<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    /// Calls `visit` with each token's place and its module: the file's own, or one between braces.
    fn walk(&self, mut visit: impl FnMut(usize, &[String])) {
        let mut module = self.module.clone();
        let mut ends = Vec::new();
        for at in 0..self.tokens.len() {
            visit(at, &module);
            if self.text(at) == "mod"
                && self.text(at + 2) == "{"
                && let Some(end) = closing(&self.tokens, at + 2)
            {
                module.push(self.text(at + 1).to_owned());
                ends.push(end);
            }
            if ends.last() == Some(&at) {
                ends.pop();
                module.pop();
            }
        }
        // A file without a token is a module, too.
        visit(self.tokens.len(), &module);
    }

    /// Every name that a `use` brings in, with its module.
    fn bindings(&self) -> Vec<(Vec<String>, Binding)> {
        let mut found = Vec::new();
        self.walk(|at, module| {
            if self.is_use(at) {
                let is_public = at > 0 && ["pub", ")"].contains(&self.text(at - 1));
                let mut bound = Vec::new();
                self.use_tree(at + 1, &mut Vec::new(), is_public, &mut bound);
                found.extend(bound.into_iter().map(|binding| (module.to_vec(), binding)));
            }
        });
        found
    }

    /// True for the `use` of an item, not that of `impl Trait + use<'a>`.
    fn is_use(&self, at: usize) -> bool {
        self.text(at) == "use" && self.text(at + 1) != "<"
    }

    /// One tree of a `use` from `at`, below `prefix`; returns the place after it.
    fn use_tree(&self, mut at: usize, prefix: &mut Vec<String>, is_public: bool, found: &mut Vec<Binding>) -> usize {
        let depth = prefix.len();
        loop {
            match self.text(at) {
                "::" => at += 1,
                "{" => {
                    at += 1;
                    while !["}", ";", ""].contains(&self.text(at)) {
                        at = self.use_tree(at, prefix, is_public, found);
                        if self.text(at) == "," {
                            at += 1;
                        }
                    }
                    at += 1;
                    break;
                }
                "*" => {
                    found.push(self.binding(at, "*", prefix, is_public));
                    at += 1;
                    break;
                }
                "as" => {
                    found.push(self.binding(at, self.text(at + 1), prefix, is_public));
                    at += 2;
                    break;
                }
                "," | ";" | "}" | "" => {
                    if prefix.last().is_some_and(|part| part == "self") && prefix.len() > 1 {
                        prefix.pop();
                    }
                    let name = prefix.last().cloned().unwrap_or_default();
                    found.push(self.binding(at, &name, prefix, is_public));
                    break;
                }
                part => {
                    prefix.push(part.to_owned());
                    at += 1;
                }
            }
        }
        prefix.truncate(depth);
        at
    }

    fn binding(&self, at: usize, name: &str, path: &[String], is_public: bool) -> Binding {
        Binding {
            name: name.to_owned(),
            path: path.to_vec(),
            line: self.tokens.get(at).map_or(0, |token| token.line),
            is_public,
        }
    }

    /// Every path of this crate that the file names. A re-export counts only when the file itself says the name, too.
    fn references(&self, tree: &Tree<'_>) -> Vec<Reference> {
        let mut found = Vec::new();
        let mut said: BTreeSet<&str> = BTreeSet::new();
        let mut use_end = 0;
        self.walk(|at, module| {
            if self.is_use(at) {
                use_end = (at..self.tokens.len()).find(|i| self.text(*i) == ";").unwrap_or(at);
            }
            let Some(token) = self.tokens.get(at) else { return };
            if at < use_end || token.kind != Kind::Word {
                return;
            }
            said.insert(token.text);
            let before = at.checked_sub(1).map_or("", |i| self.text(i));
            if self.text(at + 1) != "::" || ["::", "."].contains(&before) {
                return;
            }
            let mut path = vec![token.text.to_owned()];
            let mut next = at + 1;
            while self.text(next) == "::" && self.tokens.get(next + 1).is_some_and(|token| token.kind == Kind::Word) {
                path.push(self.text(next + 1).to_owned());
                next += 2;
            }
            if let Some(path) = tree.absolute(module, &path) {
                found.push(Reference { path, line: token.line });
            }
        });
        for (module, binding) in self.bindings() {
            if binding.is_public && !said.contains(binding.name.as_str()) {
                continue;
            }
            let Some(path) = tree.absolute(&module, &binding.path) else {
                continue;
            };
            if binding.name == "*" {
                // Whatever of it the file says.
                for name in said.iter().filter(|name| tree.has(&path, name)) {
                    let path = path
                        .iter()
                        .map(String::as_str)
                        .chain([*name])
                        .map(str::to_owned)
                        .collect();
                    found.push(Reference {
                        path,
                        line: binding.line,
                    });
                }
            } else {
                found.push(Reference {
                    path,
                    line: binding.line,
                });
            }
        }
        found
    }
}
