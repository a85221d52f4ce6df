//! Media types by file name.

/// The media type of a file by its extension, or its name `metrics` (Prometheus' text format);
/// `application/octet-stream` when unknown.
pub fn of(name: &[u8]) -> &'static str {
    if name.rsplit(|&b| b == b'/').next() == Some(b"metrics") {
        // Prometheus refuses other types.
        return "text/plain; version=0.0.4; charset=utf-8";
    }
    let Some(dot) = name.iter().rposition(|&b| b == b'.') else { return "application/octet-stream" };
    let extension = name[dot + 1..].to_ascii_lowercase();
    match extension.as_slice() {
        b"ts" | b"m2ts" | b"mts" | b"m2t" => "video/mp2t",
        b"mp4" | b"m4v" => "video/mp4",
        b"mpg" | b"mpeg" | b"vob" => "video/mpeg",
        b"mkv" => "video/x-matroska",
        b"webm" => "video/webm",
        b"mov" => "video/quicktime",
        b"avi" => "video/x-msvideo",
        b"m3u8" => "application/vnd.apple.mpegurl",
        b"mpd" => "application/dash+xml",
        b"m4s" => "video/iso.segment",
        b"mp3" => "audio/mpeg",
        b"aac" => "audio/aac",
        b"flac" => "audio/flac",
        b"wav" => "audio/wav",
        b"ogg" => "audio/ogg",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"png" => "image/png",
        b"gif" => "image/gif",
        b"svg" => "image/svg+xml",
        b"webp" => "image/webp",
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"csv" => "text/csv; charset=utf-8",
        b"txt" | b"log" | b"md" | b"toml" => "text/plain; charset=utf-8",
        b"js" => "text/javascript; charset=utf-8",
        b"json" => "application/json",
        b"xml" => "application/xml",
        b"pdf" => "application/pdf",
        b"zip" => "application/zip",
        b"gz" => "application/gzip",
        b"tar" => "application/x-tar",
        _ => "application/octet-stream",
    }
}
