//! Ready programs, embedded: written for kagiri in WML, by the names and variables that filebench's users
//! know.

/// Name and text of each.
pub const ALL: [(&str, &str); 47] = [
    ("fileserver", include_str!("../personalities/fileserver.f")),
    ("varmail", include_str!("../personalities/varmail.f")),
    ("webserver", include_str!("../personalities/webserver.f")),
    ("webproxy", include_str!("../personalities/webproxy.f")),
    ("videoserver", include_str!("../personalities/videoserver.f")),
    ("oltp", include_str!("../personalities/oltp.f")),
    ("tpcso", include_str!("../personalities/tpcso.f")),
    ("netsfs", include_str!("../personalities/netsfs.f")),
    ("networkfs", include_str!("../personalities/networkfs.f")),
    ("mongo", include_str!("../personalities/mongo.f")),
    ("copyfiles", include_str!("../personalities/copyfiles.f")),
    ("ratelimcopyfiles", include_str!("../personalities/ratelimcopyfiles.f")),
    ("createfiles", include_str!("../personalities/createfiles.f")),
    ("openfiles", include_str!("../personalities/openfiles.f")),
    ("listdirs", include_str!("../personalities/listdirs.f")),
    ("makedirs", include_str!("../personalities/makedirs.f")),
    ("removedirs", include_str!("../personalities/removedirs.f")),
    ("createdelete-swing", include_str!("../personalities/createdelete-swing.f")),
    ("compflow_demo", include_str!("../personalities/compflow_demo.f")),
    ("cvar_example", include_str!("../personalities/cvar_example.f")),
    ("randomfileaccess", include_str!("../personalities/randomfileaccess.f")),
    ("randomread", include_str!("../personalities/randomread.f")),
    ("randomwrite", include_str!("../personalities/randomwrite.f")),
    ("randomrw", include_str!("../personalities/randomrw.f")),
    ("singlestreamread", include_str!("../personalities/singlestreamread.f")),
    ("singlestreamreaddirect", include_str!("../personalities/singlestreamreaddirect.f")),
    ("singlestreamwrite", include_str!("../personalities/singlestreamwrite.f")),
    ("singlestreamwritedirect", include_str!("../personalities/singlestreamwritedirect.f")),
    ("fivestreamread", include_str!("../personalities/fivestreamread.f")),
    ("fivestreamreaddirect", include_str!("../personalities/fivestreamreaddirect.f")),
    ("fivestreamwrite", include_str!("../personalities/fivestreamwrite.f")),
    ("fivestreamwritedirect", include_str!("../personalities/fivestreamwritedirect.f")),
    ("filemicro_create", include_str!("../personalities/filemicro_create.f")),
    ("filemicro_createfiles", include_str!("../personalities/filemicro_createfiles.f")),
    ("filemicro_createrand", include_str!("../personalities/filemicro_createrand.f")),
    ("filemicro_delete", include_str!("../personalities/filemicro_delete.f")),
    ("filemicro_rread", include_str!("../personalities/filemicro_rread.f")),
    ("filemicro_rwrite", include_str!("../personalities/filemicro_rwrite.f")),
    ("filemicro_rwritedsync", include_str!("../personalities/filemicro_rwritedsync.f")),
    ("filemicro_rwritefsync", include_str!("../personalities/filemicro_rwritefsync.f")),
    ("filemicro_seqread", include_str!("../personalities/filemicro_seqread.f")),
    ("filemicro_seqwrite", include_str!("../personalities/filemicro_seqwrite.f")),
    ("filemicro_seqwriterand", include_str!("../personalities/filemicro_seqwriterand.f")),
    ("filemicro_seqwriterandvargam", include_str!("../personalities/filemicro_seqwriterandvargam.f")),
    ("filemicro_seqwriterandvartab", include_str!("../personalities/filemicro_seqwriterandvartab.f")),
    ("filemicro_statfile", include_str!("../personalities/filemicro_statfile.f")),
    ("filemicro_writefsync", include_str!("../personalities/filemicro_writefsync.f")),
];

/// What the programs of [`ALL`] are for, in its order, and how many are of each kind.
const KINDS: [(&str, usize); 5] = [("servers", 10), ("trees", 8), ("WML", 2), ("files", 12), ("micro", 15)];

/// The programs of each kind, and what they are for.
pub fn by_kind() -> impl Iterator<Item = (&'static str, &'static [(&'static str, &'static str)])> {
    let mut rest: &[(&str, &str)] = &ALL;
    KINDS.iter().map(move |(kind, count)| {
        let (these, others) = rest.split_at(*count);
        rest = others;
        (*kind, these)
    })
}

/// The text of a personality.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// What a personality does: its first line.
pub fn about(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::program::{SetValue, Source};

    #[test]
    fn every_personality_is_evaluated_and_says_what_it_does() {
        assert_eq!(by_kind().map(|(_, programs)| programs.len()).sum::<usize>(), ALL.len());
        let none = BTreeMap::<String, SetValue>::new();
        for (name, text) in ALL {
            let source = Source::of_personality(name).unwrap();
            let ready = source.evaluate(none.iter(), None).unwrap_or_else(|error| panic!("{error}"));
            assert!(ready.program.threads() > 0 && ready.program.runs, "{name}");
            assert!(about(text).ends_with('.') && about(text).len() > 20, "{name}: {}", about(text));
        }
    }

    #[test]
    fn fileserver_has_the_known_round_of_eleven_operations() {
        let none = BTreeMap::<String, SetValue>::new();
        let ready = Source::of_personality("fileserver").unwrap().evaluate(none.iter(), Some(1)).unwrap();
        assert_eq!(ready.compiled.counted_per_round(), Some(11.0));
        let kinds: Vec<&str> = ready.compiled.rows.iter().map(|row| row.kind.word()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "closefile").count(), 3);
    }
}
