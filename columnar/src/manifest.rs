//! The store-wide manifest: one append-only log of edits, rewritten when it has grown.
//!
//! An edit is durable, whole, when [`Manifest::append`] returns; a torn tail is an edit that never
//! was. The manifest never names a file that was not synced before.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Disk, Format, FrameWriter, parent_of};
use types::{Error, Result};

use crate::record::{Edit, ManifestState};

const FORMAT: Format = Format::new(*b"ISOBARCM", 1);
/// The log is rewritten once it is this much longer than the state it describes …
const GROWTH: u64 = 4;
/// … and longer than this, in bytes.
const REWRITE_ABOVE: u64 = 1 << 20;

/// The open manifest.
pub struct Manifest {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    writer: Option<FrameWriter>,
    state: ManifestState,
    /// Length right after the last rewrite.
    base: u64,
}

impl Manifest {
    /// Opens the manifest of a store, or begins one. One that is damaged is set aside: the store begins
    /// anew, and its groups find that their data is gone.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self> {
        let path = dir.join("manifest");
        match Self::read(disk.clone(), &path) {
            Err(Error::Corrupt(why)) => {
                tracing::error!(why, "the columnar store begins anew: its replicas are replaced");
                disk.rename(&path, &path.with_extension("damaged"))?;
                disk.sync_dir(dir)?;
                Self::read(disk, &path)
            }
            opened => opened,
        }
    }

    fn read(disk: Arc<dyn Disk>, path: &Path) -> Result<Self> {
        let path = path.to_path_buf();
        let mut state = ManifestState::default();
        let writer = if disk.exists(&path)? {
            FrameWriter::open(disk.as_ref(), &path, FORMAT, |record| {
                let edits: Vec<Edit> = postcard::from_bytes(&record.payload)?;
                edits.into_iter().try_for_each(|edit| state.apply(edit))
            })?
        } else {
            FrameWriter::create(disk.as_ref(), &path, FORMAT)?
        };
        let base = writer.len();
        Ok(Manifest { disk, path, writer: Some(writer), state, base })
    }

    /// The state as of the last durable edit.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Length of the log in bytes.
    pub fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, FrameWriter::len)
    }

    /// Whether what the disk holds is known; if not, the next append rewrites it first, and no
    /// file may be removed until then.
    pub fn is_sound(&self) -> bool {
        self.writer.is_some()
    }

    /// Makes edits durable, all or none. After an error none of them has taken effect, though a
    /// crash before the next success may still bring them up.
    pub fn append(&mut self, edits: Vec<Edit>) -> Result<()> {
        if self.writer.is_none() {
            self.rewrite()?;
        }
        self.state.check(&edits)?;
        let bytes = encode(&edits)?;
        let Some(writer) = self.writer.as_mut() else {
            return Err(Error::Io(format!("{} is not open", self.path.display())));
        };
        if let Err(error) = writer.append(&bytes).and_then(|_| writer.sync()) {
            self.writer = None;
            return Err(error);
        }
        edits.into_iter().try_for_each(|edit| self.state.apply(edit))
    }

    /// Whether a rewrite would pay.
    pub fn is_bloated(&self) -> bool {
        self.len() > REWRITE_ABOVE && self.len() > self.base.saturating_mul(GROWTH)
    }

    /// Replaces the log by one that holds the state alone.
    pub fn rewrite(&mut self) -> Result<()> {
        let temporary = self.path.with_extension("new");
        let mut writer = FrameWriter::create(self.disk.as_ref(), &temporary, FORMAT)?;
        for tablet in self.state.tablets.values() {
            writer.append(&encode(&[Edit::Put(Box::new(tablet.clone()))])?)?;
        }
        writer.sync()?;
        self.writer = None;
        self.disk.rename(&temporary, &self.path)?;
        self.disk.sync_dir(parent_of(&self.path))?;
        self.base = writer.len();
        self.writer = Some(writer);
        Ok(())
    }
}

fn encode(edits: &[Edit]) -> Result<Vec<u8>> {
    postcard::to_extend(edits, Vec::new())
        .map_err(|error| Error::Invalid(format!("a manifest edit cannot be encoded: {error}")))
}
