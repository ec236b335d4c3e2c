// Preloaded, so that Node 20's fetch honours HTTPS_PROXY; newer ones do where NODE_USE_ENV_PROXY is set.

import { EnvHttpProxyAgent, setGlobalDispatcher } from "undici";

setGlobalDispatcher(new EnvHttpProxyAgent());
