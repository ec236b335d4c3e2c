// A publisher under Node: lines of text with tabs, names of its own in order of time, uploads that are moved into place.

import { DefaultAzureCredential } from "@azure/identity";
import { DataLakeServiceClient } from "@azure/storage-file-datalake";

const { FABRIC_WORKSPACE_ID, FABRIC_MIRRORED_DATABASE_ID } = process.env;
const TABLE = `${FABRIC_MIRRORED_DATABASE_ID}/Files/LandingZone/Sensors`;
const COLUMNS = { sensor: "String", at: "DateTime", value: "Double" };

const service = new DataLakeServiceClient("https://onelake.dfs.fabric.microsoft.com", new DefaultAzureCredential());
const workspace = service.getFileSystemClient(FABRIC_WORKSPACE_ID);

async function land(name, content) {
  const file = workspace.getFileClient(`${TABLE}/_${name}`);
  await file.create();
  await file.upload(Buffer.from(content));
  await file.move(`${TABLE}/${name}`);
}

const lines = (...rows) => rows.map((row) => row.join("\t") + "\n").join("");
const names = Object.keys(COLUMNS);

await workspace.getDirectoryClient(TABLE).createIfNotExists();
await land("readings-z.tsv", lines(names, ["north", "2026-11-02T08:15:30", 1.5], ["south", "2026-11-02T08:15:30", ""]));
await land("_metadata.json", JSON.stringify({
  keyColumns: ["sensor"],
  fileDetectionStrategy: "LastUpdateTimeFileDetection",
  isUpsertDefaultRowMarker: true,
  FileFormat: "DelimitedText",
  FileExtension: "tsv",
  FileFormatTypeProperties: { FirstRowAsHeader: true, ColumnSeparator: "\t", RowSeparator: "\n" },
  SchemaDefinition: {
    Columns: names.map((Name) => ({ Name, DataType: COLUMNS[Name], IsNullable: Name !== "sensor" })),
  },
}));
await new Promise((done) => setTimeout(done, 1100)); // files of one second would have no order
await land("readings-a.tsv", lines(names, ["south", "2026-11-02T08:16:00", 2.25], ["wëst", "2026-11-02T08:16:00", -1]));
await new Promise((done) => setTimeout(done, 1100));
await land("readings-m.tsv", lines([...names, "__rowMarker__"], ["north", "", "", 2]));
