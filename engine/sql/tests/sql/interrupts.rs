//! What holds interrupts off.

use std::time::Duration;

use execution::interrupts::Interrupts;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn an_interruption_waits_for_what_is_held() {
    let (interrupts, cancel) = (Interrupts::default(), CancellationToken::new());
    let (one, two) = (interrupts.hold(), interrupts.hold());
    cancel.cancel();
    let soon = Duration::from_millis(50);
    for held in [one, two] {
        assert!(tokio::time::timeout(soon, interrupts.interruption(&cancel)).await.is_err());
        drop(held);
    }
    tokio::time::timeout(soon, interrupts.interruption(&cancel)).await.unwrap();
}
