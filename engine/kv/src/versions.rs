//! Checks what fjall's trees do not check when they are opened: the list of their tables.
//!
//! lsm-tree 3.1 writes each version of a tree to a file `v<number>` and names it, with its checksum, in
//! `current`; it compares that checksum nowhere ("maybe validate", says its `version/recovery.rs`), and a
//! changed byte in the list loses a table in silence. This never changes a file.
//!
//! Layout of `current`, little-endian: number 8, xxh3-128 of the version's file 16, kind of checksum 1.

use std::path::Path;

use env::{Access, Disk};
use types::{Error, Result};

const TREES: &str = "keyspaces";
const CURRENT: &str = "current";
const XXH3: u8 = 0;

/// Checks the current version of every tree in a database.
///
/// # Errors
///
/// `Corrupt` if one is not what was written, `Io`.
pub(crate) fn check(disk: &dyn Disk, database: &Path) -> Result<()> {
    let trees = database.join(TREES);
    if !disk.exists(&trees)? {
        return Ok(());
    }
    for tree in disk.list(&trees)? {
        // One that a crash has left half made: fjall begins it anew.
        if disk.exists(&tree.join(CURRENT))? {
            check_tree(disk, &tree)?;
        }
    }
    Ok(())
}

fn check_tree(disk: &dyn Disk, tree: &Path) -> Result<()> {
    let damaged = |what: String| Error::Corrupt(format!("{}: {what}", tree.display()));
    let current = read(disk, &tree.join(CURRENT))?;
    let fields = current.split_first_chunk::<8>().and_then(|(number, rest)| {
        let (sum, kind) = rest.split_first_chunk::<16>()?;
        Some((u64::from_le_bytes(*number), u128::from_le_bytes(*sum), *kind.first()?))
    });
    let Some((number, sum, XXH3)) = fields else {
        return Err(damaged("the file that names its version is damaged".to_owned()));
    };
    let path = tree.join(format!("v{number}"));
    if !disk.exists(&path)? {
        return Err(damaged(format!("its version {number} is gone")));
    }
    if xxhash_rust::xxh3::xxh3_128(&read(disk, &path)?) != sum {
        return Err(damaged(format!("its version {number} does not match its checksum")));
    }
    Ok(())
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>> {
    let file = disk.open(path, Access::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
