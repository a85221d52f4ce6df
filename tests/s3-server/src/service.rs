//! The requests of S3 on the buckets.

mod multipart;
mod objects;

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::listing::{Page, Query, encoded, page};
use crate::multipart::Uploads;
use crate::objects::{Buckets, Object};

pub(crate) struct Storage {
    buckets: Arc<Buckets>,
    uploads: Uploads,
}

type Answer<T> = S3Result<S3Response<T>>;

fn answer<T>(output: T) -> Answer<T> {
    Ok(S3Response::new(output))
}

fn failed(error: io::Error) -> s3s::S3Error {
    s3_error!(InternalError, "the server's storage: {error}")
}

impl Storage {
    pub(crate) fn new(buckets: Arc<Buckets>) -> Self {
        Self { buckets, uploads: Uploads::default() }
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        match self.buckets.lock().contains_key(bucket) {
            true => Ok(()),
            false => Err(s3_error!(NoSuchBucket, "The specified bucket does not exist")),
        }
    }

    fn object(&self, bucket: &str, key: &str) -> S3Result<Arc<Object>> {
        let buckets = self.buckets.lock();
        let objects = buckets
            .get(bucket)
            .ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist"))?;
        objects.get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey, "The specified key does not exist."))
    }

    /// Takes the place of the object of this key, if there is one.
    fn insert(&self, bucket: &str, key: String, object: Object) -> S3Result<()> {
        let mut buckets = self.buckets.lock();
        let objects = buckets
            .get_mut(bucket)
            .ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist"))?;
        objects.insert(key, Arc::new(object));
        Ok(())
    }

    fn remove(&self, bucket: &str, key: &str) -> S3Result<()> {
        self.check_bucket(bucket)?;
        self.buckets.lock().get_mut(bucket).and_then(|objects| objects.remove(key));
        Ok(())
    }

    fn list(&self, bucket: &str, query: &Query<'_>) -> S3Result<Page> {
        let buckets = self.buckets.lock();
        let objects = buckets
            .get(bucket)
            .ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist"))?;
        Ok(page(objects, query))
    }
}

/// A body in memory.
async fn read(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    let mut body = body;
    while let Some(chunk) = match &mut body {
        Some(body) => body.next().await,
        None => None,
    } {
        bytes.extend_from_slice(&chunk.map_err(|error| s3_error!(IncompleteBody, "{error}"))?);
    }
    Ok(bytes.freeze())
}

/// Bucket and key of a copy's source.
fn source(source: &CopySource) -> S3Result<(&str, &str)> {
    match source {
        CopySource::Bucket { bucket, key, .. } => Ok((bucket, key)),
        _ => Err(s3_error!(NotImplemented, "copies are made from buckets only")),
    }
}

fn is_url(encoding: Option<&EncodingType>) -> bool {
    encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL)
}

#[async_trait]
impl S3 for Storage {
    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let names: Vec<String> = self.buckets.lock().keys().cloned().collect();
        let bucket = |name| Bucket { name: Some(name), ..Bucket::default() };
        answer(ListBucketsOutput {
            buckets: Some(names.into_iter().map(bucket).collect()),
            ..ListBucketsOutput::default()
        })
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        self.buckets.create(&req.input.bucket);
        answer(CreateBucketOutput::default())
    }

    async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let bucket = &req.input.bucket;
        self.check_bucket(bucket)?;
        let mut buckets = self.buckets.lock();
        if buckets.get(bucket).is_some_and(|objects| !objects.is_empty()) {
            return Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty"));
        }
        buckets.remove(bucket);
        answer(DeleteBucketOutput::default())
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.check_bucket(&req.input.bucket)?;
        answer(HeadBucketOutput::default())
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        self.check_bucket(&req.input.bucket)?;
        answer(GetBucketLocationOutput::default())
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = req.input;
        let is_encoded = is_url(input.encoding_type.as_ref());
        let page = self.list(
            &input.bucket,
            &Query {
                prefix: input.prefix.as_deref().unwrap_or_default(),
                delimiter: input.delimiter.as_deref(),
                after: input.marker.as_deref().unwrap_or_default(),
                max: input.max_keys,
                is_encoded,
            },
        )?;
        let text = |text: String| if is_encoded { encoded(&text) } else { text };
        answer(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: input.prefix.map(text),
            marker: Some(text(input.marker.unwrap_or_default())),
            delimiter: input.delimiter.map(text),
            max_keys: Some(page.max),
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.map(text),
            contents: Some(page.contents),
            common_prefixes: Some(page.prefixes),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        })
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = req.input;
        let is_encoded = is_url(input.encoding_type.as_ref());
        let page = self.list(
            &input.bucket,
            &Query {
                prefix: input.prefix.as_deref().unwrap_or_default(),
                delimiter: input.delimiter.as_deref(),
                after: input.continuation_token.as_ref().or(input.start_after.as_ref()).map_or("", |s| s),
                max: input.max_keys,
                is_encoded,
            },
        )?;
        let text = |text: String| if is_encoded { encoded(&text) } else { text };
        answer(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix.map(text),
            delimiter: input.delimiter.map(text),
            start_after: input.start_after.map(text),
            continuation_token: input.continuation_token,
            max_keys: Some(page.max),
            key_count: Some(page.count()),
            is_truncated: Some(page.next.is_some()),
            // The token is opaque: the last key as it is.
            next_continuation_token: page.next,
            contents: Some(page.contents),
            common_prefixes: Some(page.prefixes),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        })
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        self.get(&req.input)
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        self.head(&req.input)
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        self.put(req.input).await
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        self.copy(req.input)
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        self.remove(&req.input.bucket, &req.input.key)?;
        answer(DeleteObjectOutput::default())
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let DeleteObjectsInput { bucket, delete, .. } = req.input;
        let mut deleted = Vec::new();
        for object in delete.objects {
            self.remove(&bucket, &object.key)?;
            deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() });
        }
        let deleted = (!delete.quiet.unwrap_or(false)).then_some(deleted);
        answer(DeleteObjectsOutput { deleted, ..DeleteObjectsOutput::default() })
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.begin_upload(req.input)
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        self.add_part(req.input).await
    }

    async fn upload_part_copy(&self, req: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        self.add_copied_part(&req.input)
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        self.complete_upload(req.input)
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        match self.uploads.end(&req.input.upload_id) {
            Some(_) => answer(AbortMultipartUploadOutput::default()),
            None => Err(s3_error!(NoSuchUpload, "The specified upload does not exist.")),
        }
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        self.parts(req.input)
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        self.check_bucket(&req.input.bucket)?;
        let uploads = self.uploads.of_bucket(&req.input.bucket);
        let upload =
            |(id, key)| MultipartUpload { upload_id: Some(id), key: Some(key), ..MultipartUpload::default() };
        answer(ListMultipartUploadsOutput {
            bucket: Some(req.input.bucket),
            is_truncated: Some(false),
            uploads: Some(uploads.into_iter().map(upload).collect()),
            ..ListMultipartUploadsOutput::default()
        })
    }
}
