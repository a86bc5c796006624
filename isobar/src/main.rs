//! The `isobar` command: parses its arguments and runs one of its subcommands.

use std::process::ExitCode;

use clap::Parser;

/// Rows are many small allocations: with glibc's allocator it took a quarter of a load's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    isobar::cli::run(isobar::cli::Cli::parse())
}
