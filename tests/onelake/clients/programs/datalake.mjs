// @azure/storage-file-datalake and @azure/identity as publishers use them; answers line by line, as answering.py.

import { createInterface } from "node:readline";
import { AzureCliCredential, ClientSecretCredential, DefaultAzureCredential } from "@azure/identity";
import { DataLakeServiceClient, StorageSharedKeyCredential } from "@azure/storage-file-datalake";

const told = process.env;
const DFS = "https://onelake.dfs.fabric.microsoft.com";
const WORKSPACE = told.FABRIC_WORKSPACE_ID;
const LANDING_ZONE = `${told.FABRIC_MIRRORED_DATABASE_ID}/Files/LandingZone`;
const SAS = "sv=2024-11-04&ss=b&srt=sco&sp=rwdlac&se=2030-01-01T00%3A00%3A00Z&sig=bm90IGEgc2lnbmF0dXJl";

const credentials = {
  default: () => new DefaultAzureCredential(),
  secret: () => new ClientSecretCredential(told.AZURE_TENANT_ID, told.AZURE_CLIENT_ID, told.AZURE_CLIENT_SECRET),
  az: () => new AzureCliCredential(),
  key: () => new StorageSharedKeyCredential("onelake", "bm90IGEga2V5"),
  none: () => undefined,
};

function workspace(address, kind) {
  const service = kind === "SAS"
    ? new DataLakeServiceClient(`${address}?${SAS}`)
    : new DataLakeServiceClient(address || DFS, credentials[kind]());
  return service.getFileSystemClient(WORKSPACE);
}

const functions = {
  // Create, upload, move, read, list, delete.
  async roundTrip(table, address, kind) {
    const place = workspace(address, kind);
    const folder = place.getDirectoryClient(`${LANDING_ZONE}/${table}`);
    const made = [(await folder.createIfNotExists()).succeeded, (await folder.createIfNotExists()).succeeded];
    const file = folder.getFileClient("_a b=ü.bin");
    await file.createIfNotExists();
    await file.upload(Buffer.from("0123456789"));
    await file.move(`${LANDING_ZONE}/${table}/a b=ü.bin`);
    const moved = folder.getFileClient("a b=ü.bin");
    const content = (await moved.readToBuffer()).toString();
    const range = (await moved.readToBuffer(3, 4)).toString();
    const listed = [];
    for await (const path of place.listPaths({ path: `${LANDING_ZONE}/${table}`, recursive: true })) {
      listed.push([path.name, path.contentLength]);
    }
    const size = (await moved.getProperties()).contentLength;
    const exists = [await file.exists(), await moved.exists()];
    await moved.delete();
    await folder.delete(true);
    return { made, content, range, listed, size, exists, gone: !(await folder.exists()) };
  },

  async pages(table, count) {
    const place = workspace("", "default");
    const folder = place.getDirectoryClient(`${LANDING_ZONE}/${table}`);
    for (let number = 0; number < count; number++) await folder.getFileClient(`${number}`).create();
    const pages = [];
    const listed = place.listPaths({ path: `${LANDING_ZONE}/${table}` }).byPage({ maxPageSize: 3 });
    for await (const page of listed) pages.push(page.pathItems.length);
    return pages;
  },

  // 20 MB in several appends at once.
  async uploadLarge(table, size) {
    const file = workspace("", "default").getFileClient(`${LANDING_ZONE}/${table}/large.bin`);
    await file.upload(Buffer.alloc(size, "x"), { chunkSize: 4 << 20, maxConcurrency: 4, singleUploadThreshold: 1 << 20 });
    return (await file.getProperties()).contentLength;
  },

  // Node's own fetch, through the proxy because of what was preloaded.
  async fetched(table) {
    const { token } = await credentials.default().getToken("https://storage.azure.com/.default");
    const url = `${DFS}/${WORKSPACE}/${LANDING_ZONE}/${table}`;
    const answer = await fetch(`${url}?resource=directory`, {
      method: "PUT",
      headers: { Authorization: `Bearer ${token}`, "Content-Length": "0" },
    });
    return answer.status;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...given] = JSON.parse(line);
  let answer;
  try {
    answer = { gave: await functions[name](...given) };
  } catch (problem) {
    answer = { refused: `${problem.statusCode ?? ""} ${problem.code ?? ""} ${problem.name}: ${problem.message}` };
  }
  console.log(JSON.stringify(answer));
}
