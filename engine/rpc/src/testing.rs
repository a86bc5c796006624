//! What tests of connections share.

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;

/// Bounds every wait of a test.
const SOON: Duration = Duration::from_secs(20);

/// What a wait brings, which must not take long.
pub(crate) async fn soon<T>(what: &str, done: impl Future<Output = T>) -> T {
    timeout(SOON, done).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// A listener on a free port, and its address.
pub(crate) async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// A listener on a port that another leaves.
pub(crate) async fn listener_again(address: &str) -> TcpListener {
    soon("the port", async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// A stream of numbers that is the same each time (xorshift).
pub(crate) fn numbers() -> impl FnMut() -> u64 {
    let mut seed = 1_u64;
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}
