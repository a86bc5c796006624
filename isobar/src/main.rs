//! The `isobar` command: parses its arguments and runs one of its subcommands.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    isobar::cli::run(isobar::cli::Cli::parse())
}
