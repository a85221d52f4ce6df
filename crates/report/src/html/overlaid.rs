//! Figures that several variants have, as one figure with a line for each.

use base::outcome::{Axis, Figure, Layer, Marks, Run, Tone};

/// In the order of the variants. More lines than tones could not be distinguished.
const TONES: [Tone; 6] = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth, Tone::Fifth, Tone::Sixth];

/// The figures at the capacity that at least two variants have, if their lines can be distinguished.
pub(super) fn figures(run: &Run) -> Vec<Figure> {
    let named = run.variants.iter().map(|variant| (variant.name.as_str(), &variant.account.figures[..]));
    overlaid(&named.collect::<Vec<_>>())
}

/// Of variants by their names.
fn overlaid(variants: &[(&str, &[Figure])]) -> Vec<Figure> {
    let Some((_, figures)) = variants.first() else { return Vec::new() };
    figures.iter().filter_map(|figure| one(variants, figure)).collect()
}

fn one(variants: &[(&str, &[Figure])], like: &Figure) -> Option<Figure> {
    let of = |(name, figures): &(&str, &[Figure])| {
        let figure = figures.iter().find(|figure| is_alike(figure, like))?;
        let lines: Vec<Layer> = figure.layers.iter().filter(|layer| is_line(layer)).cloned().collect();
        Some(((*name).to_owned(), lines))
    };
    let all: Vec<(String, Vec<Layer>)> =
        variants.iter().filter_map(of).filter(|(_, lines)| !lines.is_empty()).collect();
    let lines: usize = all.iter().map(|(_, lines)| lines.len()).sum();
    if all.len() < 2 || lines > TONES.len() {
        return None;
    }
    let named = all.into_iter().flat_map(|(variant, lines)| {
        let several = lines.len() > 1;
        lines.into_iter().map(move |line| match several {
            true => Layer { name: format!("{variant}: {}", line.name), ..line },
            false => Layer { name: variant.clone(), ..line },
        })
    });
    let layers = named.zip(TONES).map(|(layer, tone)| Layer { tone, ..layer }).collect();
    // An axis that ends with one variant's values would cut the others' off.
    let open = |axis: &Axis| Axis { to: None, ..axis.clone() };
    let alike = variants.iter().flat_map(|(_, figures)| figures.iter().filter(|one| is_alike(one, like)));
    let note = common(&like.note, &alike.map(|figure| figure.note.as_str()).collect::<Vec<_>>());
    Some(Figure { layers, note, x: open(&like.x), y: open(&like.y), ..like.clone() })
}

/// The sentences of a note that are the same in all.
fn common(note: &str, all: &[&str]) -> String {
    let sentences = note.split_inclusive(". ");
    let is_common = |sentence: &&str| all.iter().all(|other| other.contains(sentence.trim_end()));
    sentences.filter(is_common).collect::<String>().trim_end().to_owned()
}

fn is_alike(one: &Figure, other: &Figure) -> bool {
    // Where an axis ends by its values, it may end elsewhere in another variant.
    let same = |a: &Axis, b: &Axis| (&a.quantity, &a.unit, a.is_log) == (&b.quantity, &b.unit, b.is_log);
    one.title == other.title && same(&one.x, &other.x) && same(&one.y, &other.y)
}

const fn is_line(layer: &Layer) -> bool {
    matches!(layer.marks, Marks::Line { .. } | Marks::Steps { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(title: &str, lines: usize) -> [Figure; 1] {
        let layer = Layer {
            name: "messages".into(),
            marks: Marks::Line { at: vec![(0.0, Some(1.0)), (1.0, Some(2.0))] },
            ..Layer::default()
        };
        [Figure { title: title.into(), layers: vec![layer; lines], ..Figure::default() }]
    }

    #[test]
    fn line_of_each_variant_has_its_name_and_tone() {
        let found = overlaid(&[
            ("none", &figure("CDF", 1)[..]),
            ("qos", &figure("CDF", 1)[..]),
            ("other", &figure("Memory", 1)[..]),
        ]);
        let layers: Vec<_> = found[0].layers.iter().map(|layer| (layer.name.as_str(), layer.tone)).collect();
        assert_eq!(layers, [("none", Tone::First), ("qos", Tone::Second)]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn note_has_what_is_true_of_all_variants() {
        let of = |note: &str| [Figure { note: note.into(), ..figure("CDF", 1)[0].clone() }];
        let found = overlaid(&[("none", &of("Share. n = 90.")[..]), ("qos", &of("Share. n = 12.")[..])]);
        assert_eq!(found[0].note, "Share.");
    }

    #[test]
    fn lines_that_could_not_be_told_apart_are_left_to_their_variants() {
        assert!(overlaid(&[("none", &figure("CDF", 4)[..]), ("qos", &figure("CDF", 3)[..])]).is_empty());
        assert!(overlaid(&[("none", &figure("CDF", 1)[..])]).is_empty());
        let found = overlaid(&[("none", &figure("CDF", 2)[..]), ("qos", &figure("CDF", 2)[..])]);
        assert_eq!(found[0].layers[3].name, "qos: messages");
    }
}
