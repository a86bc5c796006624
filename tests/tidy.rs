//! Keeps the tree's own rules: who may import whom, what every file begins with, how long it may be.
//!
//! It reads sources and `cargo metadata` and must never depend on a crate of ours, so that it runs when nothing else compiles.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[path = "tidy/files.rs"]
mod files;

/// Lines that a file of production code may have.
const MOST_LINES: usize = 700;

/// Each crate and those that it may import, as in ARCHITECTURE.md.
const IMPORTS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("env", &["types"]),
    ("kv", &["types", "env"]),
    ("raft", &["types", "env"]),
    ("resources", &["types", "env"]),
    ("placement", &["types", "env", "kv", "raft", "resources"]),
    ("txn", &["types", "env", "kv", "raft", "resources", "placement"]),
    ("values", &["types"]),
    ("syntax", &["types", "values"]),
    ("functions", &["types", "values"]),
    ("access", &["types", "placement", "values", "syntax", "functions"]),
    ("binder", &["types", "values", "syntax", "functions"]),
    ("definitions", &["types", "placement", "values", "syntax", "binder"]),
    ("storage", &["types", "env", "resources", "placement", "txn", "values", "binder"]),
    ("execution", &["types", "values", "syntax", "functions", "binder"]),
    (
        "information_schema",
        &[
            "types",
            "env",
            "placement",
            "values",
            "syntax",
            "access",
            "binder",
            "execution",
            "definitions",
            "storage",
        ],
    ),
    (
        "sql",
        &[
            "types",
            "env",
            "resources",
            "placement",
            "values",
            "syntax",
            "functions",
            "access",
            "binder",
            "execution",
            "definitions",
            "storage",
            "information_schema",
        ],
    ),
    ("wire", &["types", "values", "execution"]),
    ("rpc", &["types", "raft", "resources", "placement", "txn"]),
    ("columnar", &["types", "env", "raft", "txn"]),
    (
        "mpp",
        &[
            "types",
            "env",
            "raft",
            "resources",
            "txn",
            "placement",
            "rpc",
            "columnar",
            "values",
            "syntax",
            "functions",
            "access",
            "binder",
            "execution",
        ],
    ),
    ("bench", &[]),
    ("diff", &[]),
    (
        "import",
        &[
            "types",
            "env",
            "resources",
            "placement",
            "txn",
            "syntax",
            "functions",
            "sql",
            "rpc",
            "values",
            "storage",
        ],
    ),
    (
        "node",
        &[
            "types",
            "env",
            "kv",
            "raft",
            "resources",
            "placement",
            "txn",
            "values",
            "execution",
            "storage",
            "sql",
            "wire",
            "rpc",
            "columnar",
            "mpp",
        ],
    ),
    (
        "isobar",
        &["types", "placement", "syntax", "execution", "rpc", "bench", "diff", "import", "node"],
    ),
    ("tests", &[]),
    ("equivalence", &["types", "env", "kv", "raft", "txn", "columnar"]),
    ("simulation", &["types", "env", "kv", "raft", "placement", "txn", "columnar"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn short(package: &str) -> String {
    package.strip_prefix("isobar-").unwrap_or(package).replace('-', "_")
}

/// What each crate imports in production code.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    // Not through a library: one that nothing else uses would change the features that the whole
    // workspace is compiled with, against those of the binary alone.
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let of = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let used = dependencies.filter(|d| d["kind"] != "dev" && ours.contains(&name(d)));
        used.map(|d| short(&name(d))).collect()
    };
    packages.iter().map(|p| (short(&name(p)), of(p))).collect()
}

/// Imports that the table does not allow, as `crate -> crate`.
fn forbidden(found: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, imported) in found {
        match allowed.get(name.as_str()) {
            None => wrong.push(format!("{name} is not in the table")),
            Some(allowed) => wrong.extend(
                imported
                    .iter()
                    .filter(|other| !allowed.contains(&other.as_str()))
                    .map(|other| format!("{name} -> {other}")),
            ),
        }
    }
    wrong
}

/// Every Rust file of ours, with its path below the root and its text.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    walk(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root(), &mut paths);
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.strip_prefix(root()).unwrap().to_owned(), text)
        })
        .collect()
}

/// Whether a file holds only tests: it lies below a folder of tests.
fn is_test(path: &Path) -> bool {
    let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    parts.any(|part| part == "tests" || part == "testing" || part == "tests.rs")
}

/// The modules of a crate that a file's production code names by `crate::`, groups included.
fn modules_named(text: &str) -> BTreeSet<String> {
    let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let code: Vec<&str> = lines.filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        let (mut depth, mut at) = (0, 0);
        for (end, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    found.insert(word(group[at..end].trim_start()));
                    at = end + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

/// Which of a crate's modules name which others, by the files below its `src`.
fn uses_of_modules(files: &[(PathBuf, &str)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        let first = path.iter().next().unwrap().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs").to_owned();
        if ["lib", "main"].contains(&module.as_str()) || is_test(path) {
            continue;
        }
        // In a file right below `src` both words name the crate's own modules.
        let text = if first.ends_with(".rs") {
            text.replace("super::", "crate::")
        } else {
            (*text).to_owned()
        };
        uses.entry(module).or_default().extend(modules_named(&text));
    }
    uses
}

/// What a crate or module imports, and what that imports, and so on.
fn reached<'a>(
    imports: &'a BTreeMap<String, BTreeSet<String>>,
    start: &'a str,
) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(name) = open.pop() {
        let next = imports.get(name).into_iter().flatten().map(String::as_str);
        open.extend(next.filter(|next| imports.contains_key(*next) && seen.insert(*next)));
    }
    seen
}

/// Sets of modules each of which reaches every other.
fn rings(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<&str>> {
    let mut found = BTreeSet::new();
    for module in imports.keys() {
        let mut ring = reached(imports, module);
        ring.retain(|other| reached(imports, other).contains(module.as_str()));
        if ring.len() > 1 {
            found.insert(ring);
        }
    }
    found
}

/// Lines before a file's own module of tests.
fn production_lines(text: &str) -> usize {
    text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

/// Marks of unfinished work, spelled so that this file does not hold them.
fn marks() -> [String; 3] {
    ["TO", "FIX", "XX"].map(|start| match start {
        "TO" => format!("{start}DO"),
        "FIX" => format!("{start}ME"),
        _ => format!("{start}X"),
    })
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let found = imports();
    assert_eq!(found.len(), IMPORTS.len(), "crates: {:?}", found.keys());
    assert_eq!(forbidden(&found), Vec::<String>::new());
}

#[test]
fn the_table_of_imports_can_refuse() {
    let planted = BTreeMap::from([
        ("raft".to_owned(), BTreeSet::from(["txn".to_owned(), "types".to_owned()])),
        ("shed".to_owned(), BTreeSet::new()),
    ]);
    assert_eq!(forbidden(&planted), ["raft -> txn", "shed is not in the table"]);
}

#[test]
fn the_table_of_imports_is_the_one_that_is_described() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let unlisted = ["isobar", "tests", "equivalence", "simulation"];
    for (package, allowed) in IMPORTS.iter().filter(|(name, _)| !unlisted.contains(name)) {
        let line = page
            .lines()
            .find(|line| {
                let name = line.split('`').nth(1).unwrap_or_default();
                line.starts_with("| `") && name.rsplit('/').next() == Some(package)
            })
            .unwrap_or_else(|| panic!("ARCHITECTURE.md does not describe {package}"));
        let last = line.trim_end_matches([' ', '|']).rsplit('|').next().unwrap();
        let described: BTreeSet<&str> = last.split('`').skip(1).step_by(2).collect();
        assert_eq!(described, allowed.iter().copied().collect(), "{package}");
    }
}

/// The arrows of a page's first picture of crates, and crates that only stand at their points. A picture behind it is of
/// the past.
fn drawn(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let picture = page.split("```").find(|part| part.starts_with("mermaid\n")).unwrap_or_default();
    for (from, to) in picture.lines().filter_map(|line| line.split_once("-->")) {
        let to: BTreeSet<String> = to.split('&').map(|name| name.trim().to_owned()).collect();
        for name in &to {
            arrows.entry(name.clone()).or_default();
        }
        arrows.entry(from.trim().to_owned()).or_default().extend(to);
    }
    arrows
}

#[test]
fn only_the_first_picture_is_read() {
    let page = "a --> b\n```sh\na --> c\n```\n```mermaid\ngraph TD\n    a --> d & e\n```\n```mermaid\na --> f\n```\n";
    let nothing = BTreeSet::new();
    let expected = [
        ("a".to_owned(), BTreeSet::from(["d".to_owned(), "e".to_owned()])),
        ("d".to_owned(), nothing.clone()),
        ("e".to_owned(), nothing),
    ];
    assert_eq!(drawn(page), BTreeMap::from(expected));
}

#[test]
fn the_picture_of_crates_shows_what_they_import() {
    let drawn = drawn(&std::fs::read_to_string(root().join("docs/crates.md")).unwrap());
    let mut imports = imports();
    imports.retain(|name, _| !["tests", "equivalence", "simulation"].contains(&name.as_str()));
    let names = |of: &BTreeMap<String, _>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&drawn), names(&imports));
    for name in imports.keys() {
        assert_eq!(reached(&drawn, name), reached(&imports, name), "{name}");
    }
}

/// The files of each crate below its `src`.
fn crates(sources: &[(PathBuf, String)]) -> BTreeMap<String, Vec<(PathBuf, &str)>> {
    let mut crates: BTreeMap<String, Vec<(PathBuf, &str)>> = BTreeMap::new();
    for (path, text) in sources {
        let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
        if let Some(at) =
            parts.iter().position(|part| *part == "src").filter(|_| parts[0] != "tests")
        {
            let file = (parts[at + 1..].iter().collect(), text.as_str());
            crates.entry(parts[..at].join("/")).or_default().push(file);
        }
    }
    crates
}

#[test]
fn modules_import_each_other_in_no_ring() {
    let sources = sources();
    let mut found: BTreeSet<(String, Vec<String>)> = BTreeSet::new();
    for (name, files) in crates(&sources) {
        let uses = uses_of_modules(&files);
        let own = rings(&uses).into_iter();
        found.extend(own.map(|ring| (name.clone(), ring.into_iter().map(str::to_owned).collect())));
    }
    assert_eq!(found, BTreeSet::new());
}

/// Files that are one recursion: a query holds expressions, and an expression queries; what a lateral table is lowered to
/// is lowered beside it.
const RECURSIONS: [&[&str]; 2] = [
    &[
        "bound::dependencies",
        "bound::from",
        "bound::groups",
        "bound::join_conditions",
        "bound::query",
        "bound::recursion",
        "bound::scalars",
        "bound::select_list",
        "bound::set_operations",
        "bound::subqueries",
        "bound::windows",
    ],
    &["bound::lateral", "bound::lower"],
];

#[test]
fn files_import_each_other_in_no_ring_but_for_two_recursions() {
    let sources = sources();
    let mut found: BTreeSet<(String, Vec<String>)> = BTreeSet::new();
    for (name, files) in crates(&sources) {
        let uses = files::uses(&files);
        let own = rings(&uses).into_iter();
        found.extend(own.map(|ring| (name.clone(), ring.into_iter().map(str::to_owned).collect())));
    }
    let expected = RECURSIONS.map(|ring| {
        ("engine/binder".to_owned(), ring.iter().map(|file| (*file).to_owned()).collect())
    });
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn a_ring_of_files_is_found() {
    let planted: [(&str, &str); 5] = [
        ("lib.rs", "pub mod a;\nuse crate::a::one::One;"),
        ("a/mod.rs", "mod one;\nmod two;\npub use one::One;"),
        ("a/one.rs", "use super::{two::{Two, more}, Shared};\n#[cfg(test)]\nuse crate::b::Three;"),
        ("a/two.rs", "// super::one\nfn two() -> crate::b::Three { super::super::b::three() }"),
        ("b.rs", "use crate::a::one::One;"),
    ];
    let planted = planted.map(|(path, text)| (PathBuf::from(path), text));
    let ring = BTreeSet::from(["a::one", "a::two", "b"]);
    assert_eq!(rings(&files::uses(&planted)), BTreeSet::from([ring]));
}

#[test]
fn a_ring_of_modules_is_found() {
    let planted: [(&str, &str); 4] = [
        ("lib.rs", "pub mod a;\npub use crate::a::One;"),
        ("a.rs", "use crate::{b::{One, crowd}, c};\n#[cfg(test)]\nuse crate::d::Two;"),
        ("b/inner.rs", "// crate::d\nfn one() -> crate::c::Three { super::two() }"),
        ("c.rs", "use super::a::Four;"),
    ];
    let planted = planted.map(|(path, text)| (PathBuf::from(path), text));
    let uses = uses_of_modules(&planted);
    let names = |module: &str| uses[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!([names("a"), names("b"), names("c")], [vec!["b", "c"], vec!["c"], vec!["a"]]);
    assert_eq!(rings(&uses), BTreeSet::from([BTreeSet::from(["a", "b", "c"])]));
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    let silent: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(silent, Vec::<PathBuf>::new(), "a first line `//! …` is missing");
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<(PathBuf, usize)> = sources()
        .into_iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (path, production_lines(&text)))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .collect();
    assert_eq!(long, [], "split by purpose: the limit is {MOST_LINES} lines");
}

#[test]
fn no_work_is_left_to_marks() {
    let marked: Vec<(PathBuf, usize)> = sources()
        .into_iter()
        .flat_map(|(path, text)| {
            let hits: Vec<(PathBuf, usize)> = text
                .lines()
                .enumerate()
                .filter(|(_, line)| marks().iter().any(|mark| line.contains(mark.as_str())))
                .map(|(at, _)| (path.clone(), at + 1))
                .collect();
            hits
        })
        .collect();
    assert_eq!(marked, [], "finish it, or open an issue and say nothing here");
}

#[test]
fn errors_are_made_by_their_table() {
    let wires = ["engine/values/src/error", "mpp/src"].map(Path::new);
    let made = format!("SqlError::{}(", "received");
    let elsewhere: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|(path, text)| !is_test(path) && text.contains(&made))
        .map(|(path, _)| path)
        .filter(|path| !wires.iter().any(|wire| path.starts_with(wire)))
        .collect();
    assert_eq!(
        elsewhere,
        Vec::<PathBuf>::new(),
        "an error of a number and a text is made by a function of engine/values/src/error"
    );
}

/// What the ledger of bugs names in backquotes that looks like a path, and what it says is planted.
fn named(ledger: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let words = |text: &str| -> BTreeSet<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let paths = words(ledger)
        .into_iter()
        .filter(|word| word.contains('/') && !word.contains(' '))
        .collect();
    let planted = ledger.split("planted `").skip(1).flat_map(|rest| {
        let cell = rest.split([';', '|']).next().unwrap_or_default();
        words(&format!("`{cell}"))
    });
    (paths, planted.collect())
}

#[test]
fn the_ledger_of_bugs_names_what_is_there() {
    let (paths, planted) = named(&std::fs::read_to_string(root().join("docs/ledger.md")).unwrap());
    let absent: Vec<String> =
        paths.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert_eq!(absent, Vec::<String>::new(), "docs/ledger.md names what is not there");
    let patches: BTreeSet<String> = std::fs::read_dir(root().join("tests/planted"))
        .unwrap()
        .filter_map(|entry| {
            Some(entry.unwrap().file_name().to_str()?.strip_suffix(".patch")?.to_owned())
        })
        .collect();
    assert_eq!(
        planted, patches,
        "each planted bug has a line in docs/ledger.md, and each that it names is there"
    );
}
