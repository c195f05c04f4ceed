// SPDX-License-Identifier: Apache-2.0
//! The tables against `cuda.h`, `cudaTypedefs.h` and `nvml.h` of the pinned release: names, arguments and their sizes,
//! entry points, values, layouts. Skipped, loudly, where `PARTAGE_CUDA_HEADERS` is not set.

mod headers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::marker::PhantomData;
use std::path::Path;

use headers::{ALL_VERSIONS, arguments, functions, pointee_type, preprocess, run, value_type};
use partage_abi::entry_points::PROC_ADDRESS;
use partage_abi::types::{self, CuResult, Layout};
use partage_abi::{nvml, values};

const CUDA: &str = "#include <stddef.h>\n#include <cuda.h>\n#include <cudaGL.h>\n#include <cudaEGL.h>\n\
                    #include <vdpau/vdpau.h>\n#include <cudaVDPAU.h>\n";
const CUDA_TYPEDEFS: &str = "#include <cudaTypedefs.h>\n#include <cudaGLTypedefs.h>\n#include <cudaEGLTypedefs.h>\n\
                             #include <cudaVDPAUTypedefs.h>\n";
const NVML: &str = "#include <stddef.h>\n#include <nvml.h>\n";
/// Declares the old versions of NVML's functions under their own names.
const NVML_ALL_VERSIONS: &str = "-DNVML_NO_UNVERSIONED_FUNC_DEFS";
/// Declared in `cudaProfiler.h`, which the package of headers lacks.
const PROFILER: [&str; 3] = ["cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"];

type Signatures = BTreeMap<String, Vec<usize>>;

macro_rules! sizes {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        // One constant list: the compiler takes minutes to optimise as many calls in one function.
        &[ $( (stringify!($symbol), &[$(size_of::<$type>()),*] as &[usize]), )* ]
    };
}

/// What each argument leads to: its size, `None` for what is no pointer or leads to bytes of no type.
type Pointees = BTreeMap<&'static str, &'static [fn() -> Option<usize>]>;

/// Tells pointers from values without naming their types.
struct Probe<T>(PhantomData<T>);

trait Value {
    fn pointee(&self) -> Option<usize> {
        None
    }
}

impl<T> Value for &Probe<T> {}

impl<T> Probe<*mut T> {
    fn pointee(&self) -> Option<usize> {
        (!std::any::type_name::<T>().ends_with("c_void")).then_some(size_of::<T>())
    }
}

impl<T> Probe<*const T> {
    fn pointee(&self) -> Option<usize> {
        Probe::<*mut T>(PhantomData).pointee()
    }
}

/// A function and its arguments' answers to what they lead to.
type Row = (&'static str, &'static [fn() -> Option<usize>]);

macro_rules! pointees {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        // Constant, as the sizes are: built at run time, it is one function of thousands of statements.
        &[ $(
            (
                stringify!($symbol),
                &[$((|| (&Probe::<$type>(PhantomData)).pointee()) as fn() -> Option<usize>),*]
                    as &[fn() -> Option<usize>],
            ),
        )* ]
    };
}

fn driver_pointees() -> &'static [Row] {
    use partage_abi::types::*;
    const ROWS: &[Row] = partage_abi::driver_table! { pointees };
    ROWS
}

fn nvml_pointees() -> &'static [Row] {
    use partage_abi::nvml::*;
    const ROWS: &[Row] = partage_abi::nvml_table! { pointees };
    ROWS
}

/// Old versions of NVML's functions, whose prototypes in the header take the newest structure although the function
/// fills an older and shorter one: the size that it fills.
const OLD_STRUCTURES: [(&str, usize); 5] = [
    ("nvmlDeviceGetPciInfo", 32),
    ("nvmlDeviceGetPciInfo_v2", 52),
    ("nvmlDeviceGetNvLinkRemotePciInfo", 52),
    ("nvmlEventSetWait", 24),
    ("nvmlComputeInstanceGetInfo", 24),
];

/// Compares what pointers lead to with the header's types; returns how many were compared.
fn compare_pointees(folder: &Path, flag: &str, include: &str, prefix: &str, ours: &[Row]) -> usize {
    let ours: Pointees = ours.iter().copied().collect();
    let declared = functions(&preprocess(folder, flag, include), prefix);
    let mut program = format!("{include}#include <stdio.h>\nint main(void) {{\n");
    let mut expected = Vec::new();
    for (name, arguments) in &declared {
        // Three functions of the profiler are declared elsewhere; they lead to text only.
        let Some(own) = ours.get(name.as_str()) else { continue };
        for (place, (argument, own)) in arguments.iter().zip(*own).enumerate() {
            let (Some(own), Some(kind)) = (own(), pointee_type(argument)) else {
                continue;
            };
            writeln!(program, "printf(\"{name} {place}:%zu\\n\", sizeof({kind}));").unwrap();
            let old = OLD_STRUCTURES.iter().find(|(old, _)| old == name && own > 8);
            if let Some((_, size)) = old {
                assert_eq!(own, *size, "{name} fills {size} bytes");
                expected.push(None);
            } else {
                expected.push(Some(format!("{name} {place}:{own}")));
            }
        }
    }
    program.push_str("return 0; }\n");
    let printed = run(folder, flag, &program);
    assert_eq!(printed.lines().count(), expected.len());
    for (ours, theirs) in expected.iter().zip(printed.lines()) {
        if let Some(ours) = ours {
            assert_eq!(ours, theirs, "ours on the left, the header's on the right");
        }
    }
    expected.len()
}

#[test]
fn pointers_lead_to_what_each_version_of_a_function_takes() {
    let Some(folder) = headers::folder("pointers_lead_to_what_each_version_of_a_function_takes") else {
        return;
    };
    let driver = compare_pointees(&folder, ALL_VERSIONS, CUDA, "cu", driver_pointees());
    let nvml = compare_pointees(&folder, NVML_ALL_VERSIONS, NVML, "nvml", nvml_pointees());
    assert!(driver > 600 && nvml > 300, "only {driver} and {nvml} compared");
}

const fn driver_rows() -> &'static [(&'static str, &'static [usize])] {
    use partage_abi::types::*;
    partage_abi::driver_table! { sizes }
}

const fn nvml_rows() -> &'static [(&'static str, &'static [usize])] {
    use partage_abi::nvml::*;
    partage_abi::nvml_table! { sizes }
}

fn signatures(rows: &[(&str, &[usize])]) -> Signatures {
    rows.iter()
        .map(|(name, sizes)| ((*name).to_owned(), sizes.to_vec()))
        .collect()
}

fn driver_sizes() -> Signatures {
    signatures(driver_rows())
}

fn nvml_sizes() -> Signatures {
    signatures(nvml_rows())
}

/// Sizes of the arguments of declared functions, as the C compiler sees them.
fn declared_sizes(folder: &Path, flag: &str, include: &str, declared: &[(String, Vec<String>)]) -> Signatures {
    let names: BTreeSet<_> = declared
        .iter()
        .flat_map(|(_, arguments)| arguments)
        .filter_map(|a| value_type(a))
        .collect();
    let mut program = format!("{include}#include <stdio.h>\nint main(void) {{\n");
    for name in &names {
        writeln!(program, "printf(\"{name}:%zu\\n\", sizeof({name}));").unwrap();
    }
    program.push_str("return 0; }\n");
    let printed = run(folder, flag, &program);
    let sizes: BTreeMap<_, usize> = printed
        .lines()
        .filter_map(|line| line.rsplit_once(':'))
        .map(|(name, size)| (name, size.parse().unwrap()))
        .collect();
    let size = |argument: &String| value_type(argument).map_or(size_of::<usize>(), |name| sizes[&*name]);
    declared
        .iter()
        .map(|(name, arguments)| (name.clone(), arguments.iter().map(size).collect()))
        .collect()
}

fn assert_same(ours: &Signatures, declared: &Signatures) {
    let missing: Vec<_> = declared.keys().filter(|name| !ours.contains_key(*name)).collect();
    assert!(missing.is_empty(), "declared and without a row: {missing:?}");
    let surplus: Vec<_> = ours.keys().filter(|name| !declared.contains_key(*name)).collect();
    assert!(surplus.is_empty(), "rows that no header declares: {surplus:?}");
    for (name, sizes) in declared {
        assert_eq!(&ours[name], sizes, "sizes of the arguments of {name}");
    }
}

#[test]
fn driver_rows_are_what_the_headers_declare() {
    let Some(folder) = headers::folder("driver_rows_are_what_the_headers_declare") else {
        return;
    };
    let declared = functions(&preprocess(&folder, ALL_VERSIONS, CUDA), "cu");
    let mut ours = driver_sizes();
    for name in PROFILER {
        assert!(ours.remove(name).is_some(), "{name} has no row");
    }
    assert_same(&ours, &declared_sizes(&folder, ALL_VERSIONS, CUDA, &declared));
    let text = std::fs::read_to_string(folder.join("cuda.h")).unwrap();
    assert!(
        text.contains("#define CUDA_VERSION 13050"),
        "the pinned headers are those of 13.5"
    );
}

#[test]
fn nvml_rows_are_what_the_header_declares() {
    let Some(folder) = headers::folder("nvml_rows_are_what_the_header_declares") else {
        return;
    };
    let declared = functions(&preprocess(&folder, NVML_ALL_VERSIONS, NVML), "nvml");
    assert_same(
        &nvml_sizes(),
        &declared_sizes(&folder, NVML_ALL_VERSIONS, NVML, &declared),
    );
}

#[test]
fn entry_points_are_those_of_the_typedefs() {
    let Some(folder) = headers::folder("entry_points_are_those_of_the_typedefs") else {
        return;
    };
    let text = preprocess(&folder, ALL_VERSIONS, &format!("{CUDA}{CUDA_TYPEDEFS}"));
    let mut declared = BTreeMap::new();
    for statement in text.split(';').filter(|statement| statement.contains("PFN_cu")) {
        let (_, rest) = statement.split_once("PFN_").unwrap();
        let (name, list) = rest.split_once(')').unwrap();
        let per_thread = name.ends_with("_ptsz") || name.ends_with("_ptds");
        let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let (base, version) = plain.rsplit_once("_v").unwrap();
        let list = list.trim().trim_start_matches('(').trim_end_matches(')');
        declared.insert(
            (base.to_owned(), version.parse::<u32>().unwrap(), per_thread),
            arguments(list).len(),
        );
    }
    let ours: BTreeMap<_, _> = PROC_ADDRESS
        .iter()
        .filter(|entry| !PROFILER.contains(&entry.name))
        .map(|entry| {
            (
                (entry.name.to_owned(), entry.version, entry.per_thread),
                entry.symbol.row().arity(),
            )
        })
        .collect();
    assert!(declared.len() > 700, "only {} typedefs understood", declared.len());
    assert_eq!(ours, declared);
}

/// The C expression for a layout's type: a typedef, or the type of an unnamed member.
fn c_type(c_name: &str) -> String {
    match c_name.split_once('.') {
        Some((outer, member)) => format!("__typeof__((({outer} *)0)->{member})"),
        None => c_name.to_owned(),
    }
}

/// Compares layouts with the compiler's; returns how many members were compared.
fn compare_layouts(folder: &Path, flag: &str, include: &str, layouts: &[Layout]) -> usize {
    let named: Vec<_> = layouts.iter().filter(|layout| !layout.c_name.is_empty()).collect();
    let mut program = format!("{include}#include <stdio.h>\nint main(void) {{\n");
    let mut expected = String::new();
    let mut members = 0;
    for layout in named {
        let kind = c_type(layout.c_name);
        writeln!(
            program,
            "printf(\"{}:%zu,%zu\\n\", sizeof({kind}), _Alignof({kind}));",
            layout.name
        )
        .unwrap();
        writeln!(expected, "{}:{},{}", layout.name, layout.size, layout.align).unwrap();
        for field in layout.fields {
            let name = format!("{}.{}", layout.name, field.name);
            writeln!(program, "printf(\"{name}:%zu\\n\", offsetof({kind}, {}));", field.name).unwrap();
            writeln!(expected, "{name}:{}", field.offset).unwrap();
            members += 1;
        }
    }
    program.push_str("return 0; }\n");
    let printed = run(folder, flag, &program);
    for (ours, theirs) in expected.lines().zip(printed.lines()) {
        assert_eq!(ours, theirs, "ours on the left, the header's on the right");
    }
    assert_eq!(expected.lines().count(), printed.lines().count());
    members
}

#[test]
fn layouts_are_those_of_the_headers() {
    let Some(folder) = headers::folder("layouts_are_those_of_the_headers") else {
        return;
    };
    let members: usize = types::LAYOUTS
        .iter()
        .map(|layouts| compare_layouts(&folder, ALL_VERSIONS, CUDA, layouts))
        .sum();
    assert!(members > 500, "only {members} members compared");
    assert!(compare_layouts(&folder, NVML_ALL_VERSIONS, NVML, nvml::LAYOUTS) > 80);
}

fn compare_values(folder: &Path, flag: &str, include: &str, ours: &[(&str, i64)]) {
    let mut program = format!("{include}#include <stdio.h>\nint main(void) {{\n");
    for (name, value) in ours {
        // Enumerators with the top bit set are unsigned in C and negative as `c_int`: compare 32 bits.
        writeln!(
            program,
            "if ((unsigned int)({name}) != {}u) printf(\"{name}=%lld\\n\", (long long)({name}));",
            *value as u32
        )
        .unwrap();
    }
    program.push_str("return 0; }\n");
    assert_eq!(
        run(folder, flag, &program),
        "",
        "values of the header that differ from ours"
    );
}

#[test]
fn values_are_those_of_the_headers() {
    let Some(folder) = headers::folder("values_are_those_of_the_headers") else {
        return;
    };
    compare_values(&folder, ALL_VERSIONS, CUDA, values::ALL);
    compare_values(&folder, NVML_ALL_VERSIONS, NVML, nvml::values::ALL);
    let results: Vec<_> = CuResult::ALL
        .iter()
        .map(|(code, name, _)| (name.to_str().unwrap(), i64::from(code.0)))
        .collect();
    compare_values(&folder, ALL_VERSIONS, CUDA, &results);
    let enumerators = preprocess(&folder, ALL_VERSIONS, CUDA);
    let declared = enumerators.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let declared: BTreeSet<_> = declared
        .filter(|word| word.starts_with("CUDA_ERROR_") || *word == "CUDA_SUCCESS")
        .collect();
    let known: BTreeSet<_> = results.iter().map(|(name, _)| *name).collect();
    assert_eq!(known, declared, "names of results");
}
