//! A client that speaks packets by hand, to say what no driver says.

use std::time::Duration;

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{HandshakePacket, HandshakeResponse};
use mysql_common::proto::MySerialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::Running;

/// Capabilities of the hand-made client.
pub fn capabilities() -> CapabilityFlags {
    CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_MULTI_STATEMENTS
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_LOCAL_FILES
        | CapabilityFlags::CLIENT_DEPRECATE_EOF
}

pub struct Raw {
    pub socket: TcpStream,
}

/// An error packet, read by hand.
#[derive(Debug, PartialEq)]
pub struct RawError {
    pub code: u16,
    pub text: String,
}

impl Raw {
    /// Connects and leaves the greeting unread.
    pub async fn connect(server: &Running) -> Self {
        Self { socket: TcpStream::connect(server.address).await.unwrap() }
    }

    /// Connects and logs in as root.
    pub async fn login(server: &Running) -> Self {
        Self::login_with(server, capabilities()).await
    }

    pub async fn login_with(server: &Running, capabilities: CapabilityFlags) -> Self {
        Self::login_answering(server, capabilities, None).await
    }

    /// Logs in as root, who has no password, with this answer to the greeting's nonce.
    pub async fn login_answering(
        server: &Running,
        capabilities: CapabilityFlags,
        answer: Option<Vec<u8>>,
    ) -> Self {
        let mut raw = Self::connect(server).await;
        let (sequence, greeting) = raw.read().await.unwrap();
        assert_eq!(sequence, 0);
        let _: HandshakePacket<'_> = ParseBuf(&greeting).parse(()).unwrap();
        let hello = HandshakeResponse::new(
            answer,
            (8, 0, 11),
            Some(&b"root"[..]),
            None::<Vec<u8>>,
            Some(mysql_common::packets::AuthPlugin::MysqlNativePassword),
            capabilities,
            None,
            1 << 24,
        );
        let mut payload = Vec::new();
        hello.serialize(&mut payload);
        raw.write(1, &payload).await;
        let (sequence, ok) = raw.read().await.unwrap();
        assert_eq!((sequence, ok[0]), (2, 0), "{ok:?}");
        raw
    }

    pub async fn write_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    pub async fn write(&mut self, sequence: u8, payload: &[u8]) {
        let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
        let mut packet = vec![a, b, c, sequence];
        packet.extend_from_slice(payload);
        self.write_bytes(&packet).await;
    }

    /// Sends a command.
    pub async fn command(&mut self, code: u8, rest: &[u8]) {
        let mut payload = vec![code];
        payload.extend_from_slice(rest);
        self.write(0, &payload).await;
    }

    /// The next packet (never a split one), or `None` at the end of the connection. At most ten
    /// seconds.
    pub async fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let mut header = [0; 4];
            self.socket.read_exact(&mut header).await.ok()?;
            let [a, b, c, sequence] = header;
            let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
            self.socket.read_exact(&mut payload).await.ok()?;
            Some((sequence, payload))
        };
        tokio::time::timeout(Duration::from_secs(10), read).await.expect("the server is silent")
    }

    /// The next packet, which must be an error.
    pub async fn read_error(&mut self) -> RawError {
        let (_, payload) = self.read().await.expect("an error, not the end");
        assert_eq!(payload[0], 0xff, "{:?}", String::from_utf8_lossy(&payload));
        RawError {
            code: u16::from_le_bytes([payload[1], payload[2]]),
            text: String::from_utf8_lossy(&payload[3..]).into_owned(),
        }
    }

    pub async fn expect_closed(&mut self) {
        assert_eq!(self.read().await, None);
    }

    /// Shows that the connection still works.
    pub async fn expect_alive(&mut self) {
        self.command(0x0e, &[]).await;
        let (sequence, ok) = self.read().await.expect("the connection is open");
        assert_eq!((sequence, ok[0]), (1, 0), "{ok:?}");
    }
}
