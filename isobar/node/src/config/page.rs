//! The page of all keys of a node's settings, `docs/reference/configuration.md`: made from the doc comments of their
//! structs and from what reading and checking says of them, and compared with it.
//!
//! `UPDATE_DOCS=1 cargo test -p isobar-node settings_are_listed` writes it.

use std::fmt::Write;
use std::path::Path;

use clap::ValueEnum;
use serde::de::DeserializeOwned;

use types::setting::SETTINGS;

use super::{Config, Member, Role};

const SOURCE: &str = include_str!("../config.rs");

const HEAD: &str = "\
# Configuration

Every key of a node's settings file (TOML), which `isobar serve --config FILE` reads: for who sets up a node. A file for
each role stands in [operating a cluster](../guides/operator.md#nodes), the least that is needed in
[install](../guides/install.md#a-nodes-settings).

The file is checked whole before anything starts; a key that does not stand here is an error. Keys of other roles may
stand in it. Everything else that can be set is a [variable](variables.md) of the MySQL port.

Made from the doc comments in `isobar/node/src/config.rs`: change those, and run
`UPDATE_DOCS=1 cargo test -p isobar-node settings_are_listed`.
";

const CHANGED: &str = "
## Changed while nodes run

`SHOW CONFIG` shows by what every node goes: `Type`, `Instance` (its internal address), `Name` and `Value`, which `LIKE` and
`WHERE` choose from; nodes report it within some seconds, and
`information_schema.cluster_config` has the same. `SET CONFIG` changes a setting of a kind of node (`row`, `sql`,
`columnar`, or `tikv`, `tidb`, `tiflash`), or of one node by its address or number, from now on and over restarts, without a
shell on the machine; what is set for a node goes before what is set for its kind. `DEFAULT` gives it back to the node's file.

```text
SHOW CONFIG WHERE Name = 'log_level';
SET CONFIG columnar log_level = 'debug';
SET CONFIG '10.0.0.5:4019' max_connections = 2000;
SET CONFIG columnar log_level = DEFAULT;
```

These can be changed (`log_level` stands in no file: a process begins with `ISOBAR_LOG`, or `info`):

| setting | nodes | values | counts |
|---|---|---|---|
";

/// How the doc comment of a key begins that is not for all roles.
const ROLES: [(&str, &[Role]); 4] = [
    ("Row nodes: ", &[Role::Row]),
    ("SQL nodes: ", &[Role::Sql]),
    ("Columnar nodes: ", &[Role::Columnar]),
    ("Row and columnar nodes: ", &[Role::Row, Role::Columnar]),
];

/// A field as the source has it.
struct Field {
    name: String,
    ty: String,
    doc: String,
}

/// The fields of a struct.
fn fields(of: &str) -> Vec<Field> {
    let (_, body) = SOURCE.split_once(&format!("pub struct {of} {{\n")).unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let (mut found, mut doc) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (name, ty) = field.trim_end_matches(',').split_once(": ").unwrap();
            let doc = std::mem::take(&mut doc).join(" ");
            found.push(Field { name: name.into(), ty: ty.into(), doc });
        }
    }
    found
}

/// The keys that are read, as the error about another one lists them.
fn keys_read<T: DeserializeOwned>() -> Vec<String> {
    let error = toml::from_str::<T>("no_such_key = 0").err().unwrap().to_string();
    let (_, keys) = error.split_once("expected ").unwrap();
    keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The least settings that do for each role, without one key.
fn settings(role: Role, without: &str) -> anyhow::Result<Config> {
    let role = format!("\"{}\"", role.name());
    let all = [
        ("role", role.as_str()),
        ("data_dir", "\"data\""),
        ("rpc_address", "\"127.0.0.1:1\""),
        ("node_id", "1"),
        ("mysql_address", "\"127.0.0.1:2\""),
        ("flight_address", "\"127.0.0.1:3\""),
        ("placement", "[{ id = 1, address = \"127.0.0.1:1\" }]"),
    ];
    let lines = all.iter().filter(|(key, _)| *key != without);
    let lines: Vec<String> = lines.map(|(key, value)| format!("{key} = {value}")).collect();
    let config: Config = toml::from_str(&lines.join("\n"))?;
    config.check()?;
    Ok(config)
}

/// Roles that do not start without a key.
fn needed_by(key: &str) -> Vec<Role> {
    let roles = Role::value_variants().iter().copied();
    roles.filter(|role| settings(*role, key).is_err()).collect()
}

/// What a key is set to where the file does not say it, as it would stand there.
fn usual(key: &str) -> Option<String> {
    let written = toml::to_string(&settings(Role::Row, "").unwrap()).unwrap();
    let start = format!("{key} = ");
    written.lines().find_map(|line| Some(line.strip_prefix(&start)?.to_owned()))
}

/// What a value of a type is to who writes the file.
fn kind(ty: &str) -> &'static str {
    let inner = ty.strip_prefix("Option<").and_then(|ty| ty.strip_suffix('>'));
    match inner.unwrap_or(ty) {
        "Role" => "name",
        "PathBuf" => "path",
        "SocketAddr" => "IP address and port",
        "NodeId" | "usize" => "number",
        "Vec<Member>" => "list of members",
        other => panic!("the page has no word for values of {other}"),
    }
}

/// Divides `MEANING; DEFAULT if not given. REST` into the default, and the meaning with the rest.
fn with_default(meaning: &str) -> Option<(String, String)> {
    let (before, rest) = meaning.split_once(" if not given.")?;
    let (before, default) = before.rsplit_once("; ")?;
    Some((default.to_owned(), format!("{before}.{rest}")))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The row of a key of a node.
fn row(field: &Field) -> String {
    let Field { name, ty, doc } = field;
    let own = ROLES.iter().find_map(|(start, roles)| Some((*roles, doc.strip_prefix(start)?)));
    let (roles, meaning) = own.unwrap_or((Role::value_variants(), doc.as_str()));
    let needed_by = needed_by(name);
    let (default, meaning) = if !needed_by.is_empty() {
        assert_eq!(needed_by, roles, "who needs {name}");
        ("required".to_owned(), meaning.to_owned())
    } else if let Some(usual) = usual(name) {
        (format!("`{usual}`"), meaning.to_owned())
    } else {
        with_default(meaning)
            .unwrap_or_else(|| panic!("{name}: `…; WHAT if not given.` says what is done without"))
    };
    let meaning = capitalised(&meaning);
    assert!(meaning.ends_with('.'), "{name}: {meaning}");
    let roles = match own {
        Some((roles, _)) => roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(", "),
        None => "all".to_owned(),
    };
    format!("| `{name}` | {roles} | {} | {default} | {meaning} |", kind(ty))
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| key | roles | type | default | what it is |\n|---|---|---|---|---|\n");
    for field in fields("Config") {
        _ = writeln!(page, "{}", row(&field));
    }
    page.push_str("\nEach member of `placement` has all of these:\n\n");
    page.push_str("| key | type | what it is |\n|---|---|---|\n");
    for Field { name, ty, doc } in fields("Member") {
        assert!(doc.ends_with('.'), "{name}: {doc}");
        _ = writeln!(page, "| `{name}` | {} | {doc} |", kind(&ty));
    }
    page.push_str(CHANGED);
    for setting in SETTINGS {
        let counts = if setting.at_once { "at once" } else { "when the node starts again" };
        let (name, kinds) = (setting.name, setting.kinds.join(", "));
        _ = writeln!(page, "| `{name}` | {kinds} | {} | {counts} |", setting.values());
    }
    page
}

#[test]
fn settings_are_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, page(), "write {} anew: UPDATE_DOCS=1", path.display());
}

#[test]
fn every_key_that_is_read_is_listed() {
    let names = |of: &str| fields(of).into_iter().map(|field| field.name).collect::<Vec<_>>();
    assert_eq!(names("Config"), keys_read::<Config>());
    assert_eq!(names("Member"), keys_read::<Member>());
}
