//! Runs scenario scripts: one file a scenario, its name the claim. `UPDATE_GOLDENFILES=1` rewrites
//! the outputs.

use std::collections::BTreeMap;
use std::path::Path;

use goldenscript::{Command, Context, Runner};

/// Runs every script of a folder, each with a fresh runner.
pub fn run_all<R: Script>(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/scripts").join(folder);
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", folder.display());
    for path in paths {
        println!("{}", path.display());
        goldenscript::run(&mut Wrapped(R::default()), path).unwrap();
    }
}

/// What a folder's scripts drive.
pub trait Script: Default {
    /// Carries out one line.
    fn line(&mut self, name: &str, args: &Args) -> String;
}

struct Wrapped<R>(R);

impl<R: Script> Runner for Wrapped<R> {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        _: &Context,
    ) -> Result<String, Box<dyn std::error::Error>> {
        let mut args = Args::default();
        let mut consumer = command.consume_args();
        while let Some((key, value)) = consumer.next_key() {
            args.named.insert(key.into(), value.into());
        }
        while let Some(value) = consumer.next_pos() {
            args.plain.push(value.into());
        }
        Ok(self.0.line(&command.name, &args))
    }
}

/// Arguments of a line.
#[derive(Default)]
pub struct Args {
    pub plain: Vec<String>,
    pub named: BTreeMap<String, String>,
}

impl Args {
    pub fn text(&self, at: usize) -> &str {
        self.plain.get(at).unwrap_or_else(|| panic!("argument {at} is missing"))
    }

    pub fn number(&self, at: usize) -> u64 {
        self.text(at).parse().unwrap()
    }

    pub fn named(&self, key: &str) -> Option<&str> {
        self.named.get(key).map(String::as_str)
    }

    pub fn named_number(&self, key: &str, default: u64) -> u64 {
        self.named(key).map_or(default, |text| text.parse().unwrap())
    }

    pub fn list(&self, key: &str) -> Vec<String> {
        let text = self.named(key).unwrap_or_default();
        text.split('/').filter(|part| !part.is_empty()).map(String::from).collect()
    }

    pub fn numbers(&self, key: &str) -> Vec<u64> {
        self.list(key).iter().map(|text| text.parse().unwrap()).collect()
    }

    pub fn has(&self, word: &str) -> bool {
        self.plain.iter().any(|plain| plain == word)
    }
}
