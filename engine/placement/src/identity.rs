//! Who a node is: the stamp in its data directory and in the directory of its Raft log.
//!
//! A node that has lost what it acknowledged is a new node. It must never take a directory for empty
//! that held something, nor go on where the two stamps do not belong together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Disk, Random};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use types::{Error, NodeId, Result};

use crate::api::{Known, Session};
use crate::formation::{ClusterId, Plan, Standing};

/// The stamp's file, in both directories.
const FILE: &str = "identity";
const FORMAT: env::Format = env::Format::new(*b"ISBRNODE", 2);

/// Starts that are remembered while none of them was confirmed.
const ATTEMPTS: usize = 64;

/// What is stamped into a node's directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The cluster.
    pub cluster: ClusterId,
    /// The incarnation's number.
    pub node: NodeId,
    /// Drawn when the directories were first used.
    pub birth: u64,
    /// How far it is.
    pub standing: Standing,
    /// This start.
    boot: u64,
    /// The last session that placement has confirmed.
    known: Known,
    /// Sessions that were begun since, which placement may have taken without our knowing.
    attempts: Vec<u64>,
    /// How often the stamp was written; 0 until both directories hold it.
    writes: u64,
}

impl Stamp {
    /// The first stamp of a node.
    pub fn new(cluster: ClusterId, node: NodeId, birth: u64, standing: Standing) -> Self {
        let known = Known::default();
        Stamp { cluster, node, birth, standing, boot: 0, known, attempts: Vec::new(), writes: 0 }
    }
}

/// Where a node keeps its stamp.
pub struct Directories {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    log: Option<PathBuf>,
    contents: Vec<PathBuf>,
}

impl Directories {
    /// `contents` are the names below `data` that hold what a node has acknowledged; nodes without Raft
    /// groups have no `log`.
    pub fn new(disk: Arc<dyn Disk>, data: &Path, log: Option<&Path>, contents: &[&str]) -> Self {
        Directories {
            disk,
            data: data.to_owned(),
            log: log.map(Path::to_owned),
            contents: contents.iter().map(|name| data.join(name)).collect(),
        }
    }

    /// The stamp; none where both directories are empty.
    ///
    /// # Errors
    /// `Revoked` where one of them, or what was in it, is lost.
    pub fn open(&self) -> Result<Option<Stamp>> {
        let data = self.read(&self.data)?;
        let Some(log_dir) = &self.log else { return Ok(data.filter(|stamp| stamp.writes > 0)) };
        let log = self.read(log_dir)?;
        match (data, log) {
            (None, None) if self.is_empty()? => Ok(None),
            (None, None) => Err(self.lost("they hold data and no stamp")),
            // Nothing was sent before both were stamped.
            (Some(data), _) if data.writes == 0 && self.is_empty()? => Ok(None),
            (Some(data), _) if data.writes == 0 => Err(self.lost("the first stamp is not whole")),
            (Some(_), None) => Err(self.lost("the Raft log's directory has lost its stamp")),
            (None, Some(_)) => Err(self.lost("the data directory has lost its stamp")),
            (Some(data), Some(log)) => match mismatch(&data, &log) {
                None => Ok(Some(data)),
                Some(why) => Err(self.lost(why)),
            },
        }
    }

    /// Stamps both directories, durably.
    pub fn write(&self, stamp: &mut Stamp) -> Result<()> {
        let Some(log) = &self.log else {
            stamp.writes += 1;
            return self.put(&self.data, stamp);
        };
        if stamp.writes == 0 {
            self.put(&self.data, stamp)?;
            stamp.writes = 1;
            self.put(log, stamp)?;
            return self.put(&self.data, stamp);
        }
        stamp.writes += 1;
        self.put(&self.data, stamp)?;
        self.put(log, stamp)
    }

    fn put(&self, dir: &Path, stamp: &Stamp) -> Result<()> {
        self.disk.create_dir_all(dir)?;
        let bytes = postcard::to_stdvec(stamp)?;
        env::atomic_write(self.disk.as_ref(), &dir.join(FILE), FORMAT, &bytes)
    }

    fn read(&self, dir: &Path) -> Result<Option<Stamp>> {
        let damaged = |error: Error| self.lost(&format!("a stamp cannot be read ({error})"));
        match env::read_whole(self.disk.as_ref(), &dir.join(FILE), FORMAT) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => {
                postcard::from_bytes(&bytes).map(Some).map_err(|e| damaged(e.into()))
            }
            // A stamp of another release is not damaged.
            Err(error @ (Error::Io(_) | Error::Invalid(_))) => Err(error),
            Err(error) => Err(damaged(error)),
        }
    }

    /// Whether neither directory holds anything that a node writes but its stamp.
    fn is_empty(&self) -> Result<bool> {
        for path in &self.contents {
            if self.disk.exists(path)? {
                return Ok(false);
            }
        }
        let Some(log) = self.log.as_ref().filter(|log| self.disk.exists(log).unwrap_or(true))
        else {
            return Ok(true);
        };
        let own = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(FILE))
        };
        Ok(self.disk.list(log)?.iter().all(own))
    }

    fn lost(&self, why: &str) -> Error {
        let log = self.log.iter().map(|log| format!(" and {}", log.display()));
        let both = format!("{}{}", self.data.display(), log.collect::<String>());
        Error::Revoked(format!(
            "{both}: {why}. What this node has acknowledged may be lost, so it cannot go on as who it \
             was: empty both and start it again, and it joins as a new node that is given its data by \
             the others"
        ))
    }
}

/// Why two stamps do not belong together.
fn mismatch(data: &Stamp, log: &Stamp) -> Option<&'static str> {
    let same = data.birth == log.birth
        && (matches!(log.standing, Standing::Prepared(_))
            || (data.cluster, data.node) == (log.cluster, log.node));
    match data.writes.checked_sub(log.writes) {
        _ if !same => Some("they belong to different nodes"),
        // A crash came between the two.
        Some(0 | 1) => None,
        Some(_) => Some("the Raft log's directory is older than the data directory"),
        None => Some("the data directory is older than the Raft log's directory"),
    }
}

/// A node's stamp and the directories that hold it.
pub struct Identity {
    directories: Arc<Directories>,
    stamp: Mutex<Stamp>,
}

impl Identity {
    /// Takes a stamp that its directories hold.
    pub fn new(directories: Arc<Directories>, stamp: Stamp) -> Self {
        Identity { directories, stamp: Mutex::new(stamp) }
    }

    /// The incarnation's number.
    pub fn node(&self) -> NodeId {
        self.stamp.lock().node
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.stamp.lock().cluster
    }

    /// The plan by which placement's group is still to be created here.
    pub fn committed_plan(&self) -> Option<Plan> {
        match &self.stamp.lock().standing {
            Standing::Committed(plan) => Some(plan.clone()),
            _ => None,
        }
    }

    /// Placement's group was created here: that never happens again.
    pub fn bootstrapped(&self) -> Result<()> {
        self.change(|stamp| stamp.standing = Standing::Member)
    }

    /// Counts a start. Durable when it returns, so that no two starts have a number in common.
    pub fn begin_session(&self, random: &Random) -> Result<Session> {
        let id = random.u64().max(1);
        self.change(|stamp| {
            stamp.boot += 1;
            if stamp.attempts.len() >= ATTEMPTS {
                stamp.attempts.remove(0);
            }
            stamp.attempts.push(id);
            let (boot, known) = (stamp.boot, stamp.known);
            Session { boot, id, known, attempts: stamp.attempts.clone() }
        })
    }

    /// Placement has taken the session.
    pub fn registered(&self, session: &Session) -> Result<()> {
        self.change(|stamp| {
            stamp.known = Known { boot: session.boot, id: session.id, mark: 0 };
            stamp.attempts.clear();
        })
    }

    /// A new mark of the session, durable: to be reported to placement. A directory that lacks it is an
    /// older copy.
    pub fn mark(&self) -> Result<u64> {
        self.change(|stamp| {
            stamp.known.mark += 1;
            stamp.known.mark
        })
    }

    fn change<R>(&self, change: impl FnOnce(&mut Stamp) -> R) -> Result<R> {
        let mut stamp = self.stamp.lock();
        let mut changed = stamp.clone();
        let result = change(&mut changed);
        self.directories.write(&mut changed)?;
        *stamp = changed;
        Ok(result)
    }
}
