//! Where the two sides are: a server's table or database, or files. Passwords stay inside `Opts`.

use std::path::{Path, PathBuf};

use mysql_async::{Opts, OptsBuilder};

use crate::error::{Error, Result};

/// One side, as the command line names it.
#[derive(Clone, Debug)]
pub enum Location {
    /// A server, and what of it.
    Server {
        /// How to connect.
        opts: Box<Opts>,
        /// Host and port, for people.
        label: String,
        /// Database.
        database: String,
        /// Table; without one, every table.
        table: Option<String>,
    },
    /// Files that make up one table.
    Files {
        /// As it was written.
        label: String,
        /// Files, sorted by name.
        files: Vec<PathBuf>,
        /// What they hold.
        format: Format,
    },
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// Comma-separated, with a line of names first.
    Csv,
}

impl Location {
    /// Reads `mysql://…` or a path; `password` goes before one in the address.
    pub fn parse(text: &str, password: Option<String>) -> Result<Location> {
        if text.starts_with("mysql://") {
            return server(text, password);
        }
        if text.contains("://") {
            return Err(Error::Usage(
                "an address begins with mysql://; files are named by their path".into(),
            ));
        }
        let files = files(text)?;
        let format = format(text, &files)?;
        Ok(Location::Files { label: text.to_owned(), files, format })
    }

    /// For people: without a password.
    pub fn label(&self) -> String {
        match self {
            Location::Server { label, database, table: Some(table), .. } => {
                format!("{label}/{database}/{table}")
            }
            Location::Server { label, database, table: None, .. } => format!("{label}/{database}"),
            Location::Files { label, .. } => label.clone(),
        }
    }
}

fn server(text: &str, password: Option<String>) -> Result<Location> {
    // The address may hold a password, so it is never repeated.
    let wrong = |why: &str| {
        Error::Usage(format!(
            "an address of mysql:// {why}; it reads mysql://user:password@host:port/database/table"
        ))
    };
    let mut url =
        url::Url::parse(text).map_err(|error| wrong(&format!("cannot be read ({error})")))?;
    let segments: Vec<String> =
        url.path().split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let (database, table) = match &segments[..] {
        [database] => (database.clone(), None),
        [database, table] => (database.clone(), Some(table.clone())),
        _ => return Err(wrong("names no database, or more than a table")),
    };
    let mut named = |segment: &str| -> Result<(Opts, String)> {
        url.set_path(segment);
        let opts = Opts::from_url(url.as_str())
            .map_err(|error| wrong(&format!("cannot be read ({error})")))?;
        let name = opts.db_name().unwrap_or_default().to_owned();
        Ok((opts, name))
    };
    let table = table.map(|table| named(&table).map(|(_, name)| name)).transpose()?;
    let (opts, database) = named(&database)?;
    let label = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
    let mut builder = OptsBuilder::from_opts(opts).prefer_socket(false).stmt_cache_size(0);
    if password.is_some() {
        builder = builder.pass(password);
    }
    Ok(Location::Server { opts: Box::new(builder.into()), label, database, table })
}

/// The files that a path names: itself, a folder's, or those that a `*` in its last part fits.
fn files(text: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(text);
    let fail = |cause: std::io::Error| Error::File {
        file: path.to_owned(),
        place: String::new(),
        cause: format!("{cause}; name an existing file, a folder, or a pattern like dir/*.parquet"),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.contains('*') && !path.is_dir() {
        std::fs::metadata(path).map_err(fail)?;
        return Ok(vec![path.to_owned()]);
    }
    let (folder, pattern) = if path.is_dir() {
        (path, None)
    } else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        (parent.unwrap_or(Path::new(".")), Some(name))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?.path();
        let name =
            entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let wanted = match &pattern {
            Some(pattern) => fits(pattern, &name),
            None => !name.starts_with(['.', '_']) && known(&entry).is_some(),
        };
        if wanted && entry.is_file() {
            found.push(entry);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(fail(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no Parquet or CSV file there",
        )));
    }
    Ok(found)
}

/// Whether a name fits a pattern of `*`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((front, rest)) => name.strip_prefix(front).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| fits(rest, tail.get(at..).unwrap_or_default()))
        }),
    }
}

fn known(file: &Path) -> Option<Format> {
    match file.extension()?.to_string_lossy().to_lowercase().as_str() {
        "parquet" | "parq" => Some(Format::Parquet),
        "csv" | "tsv" => Some(Format::Csv),
        _ => None,
    }
}

fn format(label: &str, files: &[PathBuf]) -> Result<Format> {
    let mut formats = files.iter().map(|file| known(file));
    let first = formats.next().flatten();
    match first {
        Some(format) if formats.all(|other| other == first) => Ok(format),
        _ => Err(Error::Usage(format!(
            "{label}: files must end in .parquet, .csv or .tsv, and all alike"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_passwords_are_not_repeated() {
        let Location::Server { opts, label, database, table } =
            Location::parse("mysql://ann:s%40cret@127.0.0.1:26000/shop/my%20orders", None).unwrap()
        else {
            panic!("an address is a server")
        };
        assert_eq!(
            (opts.user(), opts.pass(), opts.tcp_port()),
            (Some("ann"), Some("s@cret"), 26000)
        );
        assert_eq!(
            (label.as_str(), database.as_str(), table.as_deref()),
            ("127.0.0.1:26000", "shop", Some("my orders"))
        );
        let with = Location::parse("mysql://ann:old@h/shop", Some("new".into())).unwrap();
        assert!(
            matches!(&with, Location::Server { opts, table: None, .. } if opts.pass() == Some("new"))
        );
        assert_eq!(with.label(), "h:3306/shop");
        for wrong in [
            "mysql://ann:s3cret@h",
            "mysql://ann:s3cret@h:x/d",
            "mysql://ann:s3cret@h/a/b/c",
            "http://s3cret@h/x",
        ] {
            let text = Location::parse(wrong, None).unwrap_err().to_string();
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn files_are_found_by_pattern_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.parquet", "a.parquet", "_SUCCESS", "c.csv", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let Location::Files { files, format, .. } =
            Location::parse(&path("*.parquet"), None).unwrap()
        else {
            panic!("a pattern is files")
        };
        assert_eq!(
            (files.len(), files[0].ends_with("a.parquet"), format),
            (2, true, Format::Parquet)
        );
        assert!(
            matches!(Location::parse(&path(""), None), Err(Error::Usage(_))),
            "a folder of both kinds"
        );
        assert!(matches!(Location::parse(&path("nope.csv"), None), Err(Error::File { .. })));
        assert!(matches!(Location::parse(&path("notes.txt"), None), Err(Error::Usage(_))));
        assert!(fits("a*b*", "axxbyy") && !fits("a*b", "axxbyy"));
    }
}
