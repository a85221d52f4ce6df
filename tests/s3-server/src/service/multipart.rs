//! Requests of uploads in several parts.

use std::time::SystemTime;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::objects::part;
use super::{Answer, Storage, answer, failed, read, source};
use crate::multipart::{Part as Kept, joined};
use crate::objects::{Facts, Object, hex};

impl Storage {
    pub(super) fn begin_upload(
        &self,
        input: CreateMultipartUploadInput,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.check_bucket(&input.bucket)?;
        let facts = Facts {
            content_type: input.content_type,
            cache_control: input.cache_control,
            content_encoding: input.content_encoding,
            metadata: input.metadata,
        };
        let id = self.uploads.begin(input.bucket.clone(), input.key.clone(), facts);
        answer(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        })
    }

    /// The part's ETag.
    fn keep(&self, id: &str, number: i32, bytes: Bytes) -> S3Result<ETag> {
        let (size, md5) = (bytes.len() as u64, <[u8; 16]>::from(Md5::digest(&bytes)));
        let body = self.buckets.store(bytes).map_err(failed)?;
        match self.uploads.add(id, number, Kept { body, size, md5 }) {
            true => Ok(ETag::Strong(hex(&md5))),
            false => Err(s3_error!(NoSuchUpload, "The specified upload does not exist.")),
        }
    }

    pub(super) async fn add_part(&self, input: UploadPartInput) -> Answer<UploadPartOutput> {
        let bytes = read(input.body).await?;
        let e_tag = self.keep(&input.upload_id, input.part_number, bytes)?;
        answer(UploadPartOutput { e_tag: Some(e_tag), ..UploadPartOutput::default() })
    }

    pub(super) fn add_copied_part(&self, input: &UploadPartCopyInput) -> Answer<UploadPartCopyOutput> {
        let (bucket, key) = source(&input.copy_source)?;
        let from = self.object(bucket, key)?;
        let range = input.copy_source_range.as_deref().map(Range::parse).transpose();
        let range = range.map_err(|error| s3_error!(InvalidArgument, "{error}"))?;
        let (bytes, _) = part(&from, range)?;
        let result = CopyPartResult {
            e_tag: Some(self.keep(&input.upload_id, input.part_number, bytes)?),
            last_modified: Some(SystemTime::now().into()),
            ..CopyPartResult::default()
        };
        answer(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() })
    }

    pub(super) fn complete_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let upload = self
            .uploads
            .end(&input.upload_id)
            .ok_or_else(|| s3_error!(NoSuchUpload, "The specified upload does not exist."))?;
        let wanted = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let parts: Option<Vec<Kept>> =
            wanted.iter().map(|part| upload.parts.get(&part.part_number?).cloned()).collect();
        let parts = parts
            .filter(|parts| !parts.is_empty())
            .ok_or_else(|| s3_error!(InvalidPart, "One or more of the specified parts could not be found"))?;
        let (bytes, etag) = joined(&parts).map_err(failed)?;
        let object = Object {
            size: bytes.len() as u64,
            body: self.buckets.store(bytes).map_err(failed)?,
            etag: etag.clone(),
            modified: SystemTime::now(),
            facts: upload.facts,
        };
        self.insert(&upload.bucket, upload.key, object)?;
        answer(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            ..CompleteMultipartUploadOutput::default()
        })
    }

    pub(super) fn parts(&self, input: ListPartsInput) -> Answer<ListPartsOutput> {
        let parts = self
            .uploads
            .parts(&input.upload_id)
            .ok_or_else(|| s3_error!(NoSuchUpload, "The specified upload does not exist."))?;
        let part = |(number, size, md5): (i32, u64, String)| Part {
            part_number: Some(number),
            size: Some(size as i64),
            e_tag: Some(ETag::Strong(md5)),
            ..Part::default()
        };
        answer(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            is_truncated: Some(false),
            parts: Some(parts.into_iter().map(part).collect()),
            ..ListPartsOutput::default()
        })
    }
}
