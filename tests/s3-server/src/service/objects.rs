//! Requests of single objects.

use bytes::Bytes;
use s3s::dto::*;
use s3s::{Body, S3Result, s3_error};

use super::{Answer, Storage, answer, failed, read, source};
use crate::objects::{Facts, Object};

impl Storage {
    pub(super) fn get(&self, input: &GetObjectInput) -> Answer<GetObjectOutput> {
        let object = self.object(&input.bucket, &input.key)?;
        let (body, content_range) = part(&object, input.range)?;
        let facts = object.facts.clone();
        answer(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(body.len() as i64),
            body: Some(StreamingBlob::from(Body::from(body))),
            content_range,
            content_type: facts.content_type,
            cache_control: facts.cache_control,
            content_encoding: facts.content_encoding,
            metadata: facts.metadata,
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            ..GetObjectOutput::default()
        })
    }

    pub(super) fn head(&self, input: &HeadObjectInput) -> Answer<HeadObjectOutput> {
        let object = self.object(&input.bucket, &input.key)?;
        let facts = object.facts.clone();
        answer(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(object.size as i64),
            content_type: facts.content_type,
            cache_control: facts.cache_control,
            content_encoding: facts.content_encoding,
            metadata: facts.metadata,
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            ..HeadObjectOutput::default()
        })
    }

    pub(super) async fn put(&self, input: PutObjectInput) -> Answer<PutObjectOutput> {
        self.check_bucket(&input.bucket)?;
        let body = read(input.body).await?;
        if input.content_length.is_some_and(|length| length != body.len() as i64) {
            return Err(s3_error!(IncompleteBody, "The body has not the announced length"));
        }
        let is_new = input.if_none_match == Some(ETagCondition::Any);
        if is_new && self.object(&input.bucket, &input.key).is_ok() {
            return Err(s3_error!(PreconditionFailed, "The object exists"));
        }
        let facts = Facts {
            content_type: input.content_type,
            cache_control: input.cache_control,
            content_encoding: input.content_encoding,
            metadata: input.metadata,
        };
        let object = self.buckets.object(body, facts).map_err(failed)?;
        let e_tag = Some(ETag::Strong(object.etag.clone()));
        self.insert(&input.bucket, input.key, object)?;
        answer(PutObjectOutput { e_tag, ..PutObjectOutput::default() })
    }

    pub(super) fn copy(&self, input: CopyObjectInput) -> Answer<CopyObjectOutput> {
        let (bucket, key) = source(&input.copy_source)?;
        let from = self.object(bucket, key)?;
        self.check_bucket(&input.bucket)?;
        let replaces = input
            .metadata_directive
            .as_ref()
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let facts = match replaces {
            true => Facts {
                content_type: input.content_type,
                cache_control: input.cache_control,
                content_encoding: input.content_encoding,
                metadata: input.metadata,
            },
            false => from.facts.clone(),
        };
        let modified = std::time::SystemTime::now();
        let (body, size, etag) = (from.body.clone(), from.size, from.etag.clone());
        let result = CopyObjectResult {
            e_tag: Some(ETag::Strong(etag.clone())),
            last_modified: Some(modified.into()),
            ..CopyObjectResult::default()
        };
        self.insert(&input.bucket, input.key, Object { body, size, etag, modified, facts })?;
        answer(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }
}

/// The bytes of a range, and how the answer names it.
pub(super) fn part(object: &Object, range: Option<Range>) -> S3Result<(Bytes, Option<String>)> {
    let whole = object.body.read().map_err(failed)?;
    let Some(range) = range else { return Ok((whole, None)) };
    let range = range
        .check(object.size)
        .map_err(|_| s3_error!(InvalidRange, "The requested range is not satisfiable"))?;
    let name = format!("bytes {}-{}/{}", range.start, range.end - 1, object.size);
    Ok((whole.slice(range.start as usize..range.end as usize), Some(name)))
}
