//! Floor 4: what people read: tables, charts, one offline HTML file, exports.
