module github.com/merchant-operator/merchant-operator

go 1.26.0

toolchain go1.26.8

require (
	code.dny.dev/ssrf v0.3.0 // special-purpose addresses that webhooks must not reach, updated with IANA's registries
	github.com/KimMachineGun/automemlimit v1.0.1 // sets Go's memory limit from the container's, for both versions of cgroups
	github.com/Shopify/toxiproxy/v2 v2.12.0 // tests: network faults between programs (make faults)
	github.com/alicebob/miniredis/v2 v2.40.0 // tools: make run where there is no redis-server
	github.com/anishathalye/porcupine v1.3.1 // tests: linearizability of what callers saw of sessions and keys
	github.com/chromedp/cdproto v0.159.0 // tests: Chromium's commands and events: emulation, accessibility tree
	github.com/chromedp/chromedp v0.23.0 // tests: drives Chromium, in tests of the payer's page and widget
	github.com/coreos/go-oidc/v3 v3.21.0 // sign-in at the console: discovery of the OpenID provider, verification of ID tokens
	github.com/emersion/go-sasl v0.0.0-20241020182733-b788ff22d5a6 // tests: sign-in at that mail server
	github.com/emersion/go-smtp v0.25.1 // tests: a mail server, also of make run
	github.com/fluxcd/cli-utils v1.2.3 // tests: kstatus, which Flux and others use for health
	github.com/getkin/kin-openapi v0.152.0 // tests: checks requests and answers against openapi.yaml
	github.com/go-logr/logr v1.4.3 // the log of controller-runtime, redirected to ours
	github.com/go-redis/redis_rate/v10 v10.0.1 // tests: the limiter of the naive service that make bench compares with
	github.com/google/go-cmp v0.7.0 // tests: readable differences
	github.com/makiuchi-d/gozxing v0.1.1 // tests: reads QR codes
	github.com/onsi/ginkgo/v2 v2.34.0 // tests: suites of controllers and CRDs on a real API server
	github.com/onsi/gomega v1.44.0 // tests: Ginkgo's assertions, which wait
	github.com/prometheus/client_golang v1.25.0 // metrics
	github.com/prometheus/client_model v0.6.3 // tests: metrics as types
	github.com/prometheus/common v0.72.0 // tests: parses metrics like Prometheus
	github.com/prometheus/procfs v0.22.0 // tools: CPU and memory of processes, in benchmarks
	github.com/redis/go-redis/v9 v9.23.0 // client of Redis, Sentinel and Redis Cluster; imported only by internal/redis
	github.com/rs/zerolog v1.33.0 // tests: the logger that toxiproxy requires, silenced
	github.com/spf13/cobra v1.10.2 // the roles as commands, with help
	github.com/spf13/pflag v1.0.10 // flags of the commands
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1 // tools: independent verification of our signatures, in the sample receiver and in tests
	github.com/tsenart/vegeta/v12 v12.12.0 // tests: load at a constant rate (make bench)
	github.com/wneessen/go-mail v0.8.1 // receipts: mails and SMTP, with TLS and sign-in
	github.com/xuri/excelize/v2 v2.11.0 // payments as a workbook of Excel, whose cells have types
	go.opentelemetry.io/otel v1.44.0 // traces: the interface
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.44.0 // traces: sent by OTLP over HTTP, if an endpoint is set
	go.opentelemetry.io/otel/sdk v1.44.0 // traces: sampling and batches
	go.opentelemetry.io/otel/trace v1.44.0 // traces: spans and their ids
	go.uber.org/goleak v1.3.0 // tests: goroutine leaks
	go.yaml.in/yaml/v2 v2.4.4 // kubectl merchant plan: the size of a manifest with its aliases replaced, by the decoder that sigs.k8s.io/yaml uses
	go.yaml.in/yaml/v3 v3.0.6 // tools: reads the comments of values.yaml, for the chart's schema
	golang.org/x/net v0.59.0 // international domains: receipts, the console's origin; tests: DNS messages, for a server with changing answers; parses payer pages
	golang.org/x/oauth2 v0.37.0 // sign-in at the console: authorization code flow with PKCE
	golang.org/x/sync v0.24.0 // one review for concurrent callers with the same token (singleflight); parallel requests of a page (errgroup)
	golang.org/x/sys v0.48.0 // TCP_USER_TIMEOUT, for streams of payers that vanish
	golang.org/x/text v0.42.0 // payer pages: languages of a browser, digits and currency symbols
	golang.org/x/time v0.15.0 // the budget of the operator's retries; tests: a constant rate (make bench)
	k8s.io/api v0.37.2 // Secrets, ConfigMaps, Events, reviews as types
	k8s.io/apiextensions-apiserver v0.37.2 // tests: CRDs as types
	k8s.io/apimachinery v0.37.2 // common types of Kubernetes: metadata, conditions, quantities, errors
	k8s.io/cli-runtime v0.37.2 // kubectl merchant: prints objects as kubectl does (-o json, yaml, name). Its genericclioptions is not used: it imports kustomize, which adds 30 MB
	k8s.io/client-go v0.37.2 // requests and watches of Kubernetes; TokenReview and SubjectAccessReview
	k8s.io/klog/v2 v2.140.0 // the log of client-go, redirected to ours
	k8s.io/streaming v0.37.2 // kubectl merchant: when to exec by SPDY instead of a WebSocket
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // a clock that tests replace
	pgregory.net/rapid v1.3.0 // tests: random inputs and operations, shrunk to the smallest failure
	rsc.io/qr v0.2.0 // QR codes
	sigs.k8s.io/controller-runtime v0.25.2 // caches, queues, leader election and reconcilers of the operator; the client with which dispatchers write status
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // schema of the generated apply configurations
	sigs.k8s.io/yaml v1.6.0 // kubectl merchant: YAML as Kubernetes reads it; also in tests
)

require (
	github.com/Azure/go-ansiterm v0.0.0-20250102033503-faa5f7b0171c // indirect
	github.com/Masterminds/semver/v3 v3.5.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/evanphx/json-patch v5.9.11+incompatible // indirect
	github.com/evanphx/json-patch/v5 v5.9.11 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/fxamacker/cbor/v2 v2.9.2 // indirect
	github.com/go-jose/go-jose/v4 v4.1.4 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.27.1 // indirect
	github.com/go-openapi/swag/cmdutils v0.27.1 // indirect
	github.com/go-openapi/swag/conv v0.27.1 // indirect
	github.com/go-openapi/swag/fileutils v0.27.1 // indirect
	github.com/go-openapi/swag/jsonutils v0.27.1 // indirect
	github.com/go-openapi/swag/loading v0.27.1 // indirect
	github.com/go-openapi/swag/mangling v0.27.1 // indirect
	github.com/go-openapi/swag/netutils v0.27.1 // indirect
	github.com/go-openapi/swag/pools v0.27.1 // indirect
	github.com/go-openapi/swag/stringutils v0.27.1 // indirect
	github.com/go-openapi/swag/typeutils v0.27.1 // indirect
	github.com/go-openapi/swag/yamlutils v0.27.1 // indirect
	github.com/go-task/slim-sprig/v3 v3.0.0 // indirect
	github.com/google/gnostic-models v0.7.1 // indirect
	github.com/google/pprof v0.0.0-20260709232956-b9395ee17fa0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/mux v1.8.1 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.29.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/josharian/intern v1.0.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/liggitt/tabwriter v0.0.0-20181228230101-89fcab3d43de // indirect
	github.com/mailru/easyjson v0.9.0 // indirect
	github.com/mattn/go-colorable v0.1.15 // indirect
	github.com/mattn/go-isatty v0.0.23 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/moby/term v0.5.2 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/oasdiff/yaml v0.1.1 // indirect
	github.com/oasdiff/yaml3 v0.0.14 // indirect
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/richardlehane/mscfb v1.0.7 // indirect
	github.com/richardlehane/msoleps v1.0.6 // indirect
	github.com/rs/dnscache v0.0.0-20230804202142-fc85eb664529 // indirect
	github.com/rs/xid v1.5.0 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	github.com/tiendc/go-deepcopy v1.7.2 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	github.com/xuri/efp v0.0.1 // indirect
	github.com/xuri/nfp v0.0.2-0.20250530014748-2ddeb826f9a9 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.44.0 // indirect
	go.opentelemetry.io/otel/metric v1.44.0 // indirect
	go.opentelemetry.io/proto/otlp v1.10.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/exp v0.0.0-20260709172345-9ea1abe57597 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/term v0.46.0 // indirect
	golang.org/x/tools v0.49.0 // indirect
	golang.org/x/xerrors v0.0.0-20200804184101-5ec99f83aff1 // indirect
	gomodules.xyz/jsonpatch/v2 v2.4.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260724162435-b2f20204f0df // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260720155508-bb71a54f79dc // indirect
	google.golang.org/grpc v1.82.1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	gopkg.in/tomb.v1 v1.0.0-20141024135613-dd632973f1e7 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
)
