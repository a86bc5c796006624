//! Which of a crate's files name which others, by `crate::` and `super::`, groups included.
//!
//! A path means the file of its longest part that is a module. A file's parents and children do not count: a folder's
//! own file is where what its files share stands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Module = Vec<String>;

/// The module that a file below `src` holds; nothing for tests.
fn module(path: &Path) -> Option<Module> {
    let mut parts: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if super::is_test(path) {
        return None;
    }
    let last = parts.pop()?;
    let name = last.trim_end_matches(".rs");
    if !["lib", "main", "mod"].contains(&name) {
        parts.push(name.to_owned());
    }
    Some(parts)
}

/// The end of a name that a text begins with.
fn name_end(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// The paths of a tree as in `use`, after the prefix.
fn expanded(tree: &str, prefix: &[String], found: &mut Vec<Module>) {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        let (mut depth, mut at) = (0, 0);
        for (end, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                '}' | ',' if depth == 0 => {
                    expanded(&group[at..end], prefix, found);
                    at = end + 1;
                    if c == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let end = name_end(tree);
    let name = &tree[..end];
    let mut path = prefix.to_vec();
    match (name, tree[end..].strip_prefix("::")) {
        ("", _) => found.push(path),
        ("super", Some(rest)) => {
            path.pop();
            expanded(rest, &path, found);
        }
        (name, rest) => {
            path.push(name.to_owned());
            match rest {
                Some(rest) => expanded(rest, &path, found),
                None => found.push(path),
            }
        }
    }
}

/// The paths that a file's production code names, from the crate's root.
fn paths(module: &[String], text: &str) -> Vec<Module> {
    let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let code: Vec<&str> = lines.filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (root, prefix) in [("crate::", &[][..]), ("super::", &module[..module.len().max(1) - 1])] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && !"_:".contains(c)) {
                expanded(&code[at + root.len()..], prefix, &mut found);
            }
        }
    }
    found
}

/// Which files name which, by their modules.
pub(super) fn uses(files: &[(PathBuf, &str)]) -> BTreeMap<String, BTreeSet<String>> {
    let known: BTreeMap<Module, &str> =
        files.iter().filter_map(|(path, text)| Some((module(path)?, *text))).collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, text) in &known {
        let used = uses.entry(module.join("::")).or_default();
        for path in paths(module, text) {
            let longest = (1..=path.len()).rev().find(|end| known.contains_key(&path[..*end]));
            let Some(named) = longest.map(|end| &path[..end]) else { continue };
            if !module.starts_with(named) && !named.starts_with(module) {
                used.insert(named.join("::"));
            }
        }
    }
    uses
}
