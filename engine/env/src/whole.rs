//! Small files that are replaced as a whole: after a crash there is the old content or the new.
//!
//! Layout, little-endian: magic 8, version 4, length 8, crc32c 4 of all other bytes, content.

use std::io;
use std::path::{Path, PathBuf};

use types::{Error, Result};

use crate::disk::{Access, Disk, parent_of};
use crate::frame::{Format, read_u32, read_u64};

const HEADER: usize = 24;

/// Replaces a file's content, durably: writes `<path>.tmp`, syncs it, renames it, syncs the
/// directory. One writer of a path at a time.
pub fn atomic_write(disk: &dyn Disk, path: &Path, format: Format, content: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + content.len());
    bytes.extend_from_slice(&format.prefix());
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), content);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(content);

    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let file = disk.create(&temporary)?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(parent_of(path))?;
    Ok(())
}

/// Reads a file that [`atomic_write`] wrote; none if it does not exist.
pub fn read_whole(disk: &dyn Disk, path: &Path, format: Format) -> Result<Option<Vec<u8>>> {
    let file = match disk.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let corrupt = |what: &str| Error::Corrupt(format!("{}: {what}", path.display()));
    let length = usize::try_from(file.len()?).map_err(|_| corrupt("impossible length"))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let (Some(fields), Some(content)) = (bytes.get(..HEADER), bytes.get(HEADER..)) else {
        return Err(corrupt("shorter than its header"));
    };
    let crc = crc32c::crc32c_append(crc32c::crc32c(fields.get(..20).unwrap_or_default()), content);
    let intact = read_u64(fields, 12) == content.len() as u64 && read_u32(fields, 20) == crc;
    // A foreign file is named as such; its checksum means nothing.
    if intact || fields.get(..8) != Some(format.magic.as_slice()) {
        format.check(fields, path)?;
    }
    if !intact {
        return Err(corrupt("its checksum does not match"));
    }
    Ok(Some(content.to_vec()))
}
