//! The server's own load page, `/.kagiri/load`.

use super::listing::page;
use super::stats::ServerStats;

/// The numbers as a page that renews itself every two seconds.
pub fn html(stats: &ServerStats) -> String {
    let rate = stats.rate_bit_per_s.map_or("-".to_owned(), |r| format!("{:.1} Mbit/s", r as f64 / 1e6));
    let cpu = stats.process_cpu_percent.map_or("-".to_owned(), |c| format!("{c:.1} % of a core"));
    let rows = [
        ("Connections", stats.connections.to_string()),
        ("Streams", stats.streams.to_string()),
        ("Sending", rate),
        ("CPU of the process", cpu),
        ("Up for", format!("{:.0} s", stats.uptime_s)),
        ("Sent", format!("{:.1} MB", stats.sent_bytes as f64 / 1e6)),
        ("Uploaded", format!("{:.1} MB", stats.uploaded_bytes as f64 / 1e6)),
        ("Connections accepted", stats.accepted.to_string()),
        ("Requests", stats.requests.to_string()),
        ("Refused", stats.refused.to_string()),
        ("Timed out", stats.timed_out.to_string()),
        ("Dropped, table full", stats.evicted.to_string()),
        ("Log lines dropped", stats.log_lines_dropped.to_string()),
        ("Worker threads", stats.threads.to_string()),
    ];
    let rows: String =
        rows.iter().map(|(name, value)| format!("<tr><td>{name}<td class=n>{value}\n")).collect();
    page("Load", "<meta http-equiv=refresh content=2>", &format!("<table>{rows}</table>"))
}
