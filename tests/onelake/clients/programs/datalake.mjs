// @azure/storage-file-datalake and @azure/identity as publishers use them.

import assert from "node:assert/strict";
import { readFile, stat } from "node:fs/promises";
import { AzureCliCredential, ClientSecretCredential, DefaultAzureCredential } from "@azure/identity";
import { DataLakeServiceClient, StorageSharedKeyCredential } from "@azure/storage-file-datalake";

const { env } = process;
const DFS = "https://onelake.dfs.fabric.microsoft.com";
const HTTP = `${env.TEST_HTTP}/onelake`;
const WORKSPACE = env.FABRIC_WORKSPACE_ID;
const LANDING_ZONE = `${env.FABRIC_MIRRORED_DATABASE_ID}/Files/LandingZone`;
const SAS = "sv=2024-11-04&ss=b&srt=sco&sp=rwdlac&se=2030-01-01T00%3A00%3A00Z&sig=bm90IGEgc2lnbmF0dXJl";

let tables = 0;
const table = () => `Node${++tables}`;
const workspace = (address, credential) =>
  new DataLakeServiceClient(address, credential).getFileSystemClient(WORKSPACE);
const byDefault = new DefaultAzureCredential();

async function roundTrip(place) {
  const path = `${LANDING_ZONE}/${table()}`;
  const folder = place.getDirectoryClient(path);
  for (const isNew of [true, false]) assert.equal((await folder.createIfNotExists()).succeeded, isNew);
  const file = folder.getFileClient("_a b=ü.bin");
  await file.createIfNotExists();
  await file.upload(Buffer.from("0123456789"));
  await file.move(`${path}/a b=ü.bin`);
  const moved = folder.getFileClient("a b=ü.bin");
  assert.equal((await moved.readToBuffer()).toString(), "0123456789");
  assert.equal((await moved.readToBuffer(3, 4)).toString(), "3456");
  const listed = [];
  for await (const each of place.listPaths({ path, recursive: true })) listed.push([each.name, each.contentLength]);
  assert.deepEqual(listed, [[`${path}/a b=ü.bin`, 10]]);
  assert.equal((await moved.getProperties()).contentLength, 10);
  assert.deepEqual([await file.exists(), await moved.exists()], [false, true]);
  await moved.delete();
  await folder.delete(true);
  assert(!(await folder.exists()));
}

// With tokens by https; with a key, a SAS or nothing by http, below /onelake.
const bySecret = new ClientSecretCredential(env.AZURE_TENANT_ID, env.AZURE_CLIENT_ID, env.AZURE_CLIENT_SECRET);
for (const credential of [byDefault, bySecret, new AzureCliCredential()]) await roundTrip(workspace(DFS, credential));
await roundTrip(workspace(HTTP, new StorageSharedKeyCredential("onelake", "bm90IGEga2V5")));
await roundTrip(workspace(`${HTTP}?${SAS}`));
await roundTrip(workspace(HTTP));
await assert.rejects(roundTrip(workspace(HTTP, byDefault)), /Bearer token authentication is not permitted for non-TLS/);
await assert.rejects(roundTrip(workspace(env.TEST_HTTP)), { statusCode: 404 }); // it takes the workspace for an account

// Lists in pages.
const place = workspace(DFS, byDefault);
const listed = `${LANDING_ZONE}/${table()}`;
for (let number = 0; number < 8; number++) await place.getFileClient(`${listed}/${number}`).create();
const pages = [];
for await (const page of place.listPaths({ path: listed }).byPage({ maxPageSize: 3 })) pages.push(page.pathItems.length);
assert.deepEqual(pages, [3, 3, 2]);

// 20 MB in several appends at once.
const [name, content] = [table(), Buffer.alloc(20 << 20, "x")];
const large = place.getFileClient(`${LANDING_ZONE}/${name}/large.bin`);
await large.upload(content, { chunkSize: 4 << 20, maxConcurrency: 4, singleUploadThreshold: 1 << 20 });
assert.equal((await large.getProperties()).contentLength, content.length);
assert(content.equals(await readFile(`${env.TEST_LANDING_ZONE}/${name}/large.bin`)));

// Node's own fetch, through the proxy because of what was preloaded.
const { token } = await byDefault.getToken("https://storage.azure.com/.default");
const fetched = table();
const answer = await fetch(`${DFS}/${WORKSPACE}/${LANDING_ZONE}/${fetched}?resource=directory`, {
  method: "PUT",
  headers: { Authorization: `Bearer ${token}`, "Content-Length": "0" },
});
assert.equal(answer.status, 201);
assert((await stat(`${env.TEST_LANDING_ZONE}/${fetched}`)).isDirectory());
