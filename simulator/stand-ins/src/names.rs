// SPDX-License-Identifier: Apache-2.0
//! The lists of names: a text per library below `names/`, from symbol tables alone.
//!
//! A list begins with `# soname: A B` (CUDA 12's file and 13's), `# version: A B` (of its symbols, or `none`) and
//! `# refusal: CODE`; with `# quiet: WHY` a refusal says nothing. Then a name a line; behind it `12` or `13` where only
//! that CUDA has it, `text` where it answers a text, and `answer N` where the library's code would be taken for a
//! pointer or a length.

/// A generation of CUDA's libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuda {
    /// 12.
    Twelve,
    /// 13.
    Thirteen,
}

/// A library that there is a stand-in for.
#[derive(Debug)]
pub struct Library {
    /// `cudart`.
    pub name: &'static str,
    /// The files of CUDA 12 and 13; they are one where they have one name.
    pub sonames: [&'static str; 2],
    /// The versions of their symbols.
    versions: Option<[&'static str; 2]>,
    /// What a refused function answers: the library's code for "not supported".
    pub refusal: i32,
    /// Whether a refusal says nothing.
    pub is_quiet: bool,
    names: Vec<Name>,
}

/// A function of a library's.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// As the vendor's library exports it.
    pub symbol: &'static str,
    /// The only generation that has it.
    only: Option<Cuda>,
    /// Whether it answers a text.
    pub is_text: bool,
    /// What it answers where it is refused, where that is not the library's code.
    pub answer: Option<i32>,
}

impl Library {
    /// Its files.
    #[must_use]
    pub fn files(&self) -> Vec<(Cuda, String)> {
        let [twelve, thirteen] = self.sonames;
        let mut files = vec![(Cuda::Twelve, twelve.to_owned())];
        if thirteen != twelve {
            files.push((Cuda::Thirteen, thirteen.to_owned()));
        }
        files
    }

    /// The version of its symbols in a generation.
    #[must_use]
    pub fn version(&self, cuda: Cuda) -> Option<&'static str> {
        self.versions
            .map(|versions| versions[usize::from(cuda == Cuda::Thirteen)])
    }

    /// Its names in a generation; all names, where one file serves both.
    #[must_use]
    pub fn names(&self, cuda: Cuda) -> Vec<Name> {
        let is_one = self.sonames[0] == self.sonames[1];
        let is_here = |name: &&Name| is_one || name.only.is_none_or(|only| only == cuda);
        self.names.iter().filter(is_here).copied().collect()
    }

    /// # Panics
    /// Where the list is malformed: it is part of this program, and a test reads each.
    fn parse(name: &'static str, text: &'static str) -> Self {
        let find = |key: &str| {
            let mut heads = text
                .lines()
                .filter_map(|line| line.strip_prefix("# ")?.split_once(": "));
            heads.find(|(found, _)| *found == key).map(|(_, value)| value.trim())
        };
        let head = |key: &str| find(key).unwrap_or_else(|| panic!("{name}: no {key}"));
        let pair = |key: &str| match head(key).split_whitespace().collect::<Vec<_>>()[..] {
            [twelve, thirteen] => Some([twelve, thirteen]),
            ["none"] => None,
            _ => panic!("{name}: {key}: {}", head(key)),
        };
        let rows = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let mut names: Vec<_> = rows.map(|line| Name::parse(line, name)).collect();
        names.sort_unstable_by_key(|name| name.symbol);
        Self {
            name,
            sonames: pair("soname").unwrap_or_else(|| panic!("{name}: no soname")),
            versions: pair("version"),
            refusal: head("refusal").parse().unwrap_or_else(|_| panic!("{name}: refusal")),
            is_quiet: find("quiet").is_some(),
            names,
        }
    }
}

impl Name {
    /// # Panics
    /// As [`Library::parse`].
    fn parse(line: &'static str, library: &str) -> Self {
        let mut words = line.split_whitespace();
        let symbol = words.next().unwrap_or_default();
        let mut name = Self {
            symbol,
            only: None,
            is_text: false,
            answer: None,
        };
        while let Some(word) = words.next() {
            match word {
                "12" => name.only = Some(Cuda::Twelve),
                "13" => name.only = Some(Cuda::Thirteen),
                "text" => name.is_text = true,
                "answer" => name.answer = words.next().and_then(|number| number.parse().ok()),
                _ => panic!("{library}: {line}"),
            }
        }
        name
    }
}

macro_rules! lists {
    ($($name:literal),* $(,)?) => {
        /// All of them.
        ///
        /// # Panics
        /// Never: the lists are read by a test.
        #[must_use]
        pub fn libraries() -> Vec<Library> {
            vec![$(Library::parse($name, include_str!(concat!("../names/", $name, ".txt")))),*]
        }
    };
}

lists!(
    "cublas",
    "cublasLt",
    "cudart",
    "cudnn",
    "cufft",
    "cufile",
    "cupti",
    "curand",
    "cusolver",
    "cusparse",
    "cusparseLt",
    "nccl",
    "nvToolsExt",
    "nvshmem_host",
);
