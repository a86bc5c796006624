//! What readers must agree on, and how a scan's results are printed.

use super::*;

#[test]
fn readers_that_saw_other_rows_are_named() {
    let seen = |values: [&str; 2]| values.map(str::to_owned).to_vec();
    assert_eq!(differs(&seen(["7", "1.50"]), &seen(["7", "1.50"])), None);
    let text = differs(&seen(["7", "1.50"]), &seen(["7", "1.51"])).unwrap();
    assert!(text.contains("1.51") && text.contains("1.50"), "{text}");
}

#[test]
fn rates_are_of_medians_and_relative_to_the_connector() {
    let result =
        |seconds: &[f64]| ReaderResult { seconds: seconds.to_vec(), ..ReaderResult::default() };
    let mut report = Report {
        rows: 600,
        readers: [
            (BASE.to_owned(), result(&[1.0, 2.0, 30.0])),
            ("jdbc-1".to_owned(), result(&[20.0])),
        ]
        .into(),
        absent: [("mariadb-1".to_owned(), "apt-get install mariadb-server".to_owned())].into(),
        ..Report::default()
    };
    report.finish();
    assert!((report.readers[BASE].rows_per_second - 300.0).abs() < 1e-6);
    assert!((report.readers["jdbc-1"].of_connector.unwrap() - 0.1).abs() < 1e-9);
    assert!(report.text().contains("mariadb-1 is absent: apt-get install"), "{}", report.text());
}
