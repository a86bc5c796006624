//! Addresses of other nodes, kept over restarts: when all nodes start at once, nobody leads placement who
//! could say where the members of its group are.
//!
//! What placement says replaces what is kept. A file that cannot be read costs nothing but that.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use placement::api::Node;
use rpc::AddressBook;
use types::NodeId;

/// The file, in the data directory.
const FILE: &str = "addresses";
const FORMAT: env::Format = env::Format::new(*b"ISBRADDR", 1);

/// Where nodes were when placement last said so.
pub(crate) struct Addresses {
    disk: Arc<dyn env::Disk>,
    path: PathBuf,
    book: AddressBook,
    kept: Vec<(NodeId, String)>,
}

impl Addresses {
    /// Takes what is kept into the book.
    pub fn open(disk: Arc<dyn env::Disk>, data_dir: &Path, book: AddressBook) -> Self {
        let path = data_dir.join(FILE);
        let kept: Vec<(NodeId, String)> = match env::read_whole(disk.as_ref(), &path, FORMAT) {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Ok(None) => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "addresses of other nodes are learnt anew");
                Vec::new()
            }
        };
        kept.iter().for_each(|(node, address)| book.insert(*node, address.clone()));
        Addresses { disk, path, book, kept }
    }

    /// Takes over what placement says.
    pub fn note(&mut self, nodes: Vec<Node>) {
        let now: Vec<(NodeId, String)> =
            nodes.into_iter().map(|node| (node.id, node.rpc_address)).collect();
        if now == self.kept || now.is_empty() {
            return;
        }
        now.iter().for_each(|(node, address)| self.book.insert(*node, address.clone()));
        let written =
            serde_json::to_vec(&now).map_err(|error| error.to_string()).and_then(|bytes| {
                let written = env::atomic_write(self.disk.as_ref(), &self.path, FORMAT, &bytes);
                written.map_err(|error| error.to_string())
            });
        match written {
            Ok(()) => self.kept = now,
            Err(error) => tracing::warn!(error, "addresses of other nodes are not kept"),
        }
    }
}
