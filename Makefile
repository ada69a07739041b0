# `make` prints the list of targets.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

# The version in the binary and the image.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# The image in the manifests of `make build-installer`, with its tag.
IMG ?= ghcr.io/merchant-operator/merchant-operator:$(VERSION)
# For example: make test PKG=./apiserver/... ARGS='-run Idempotency -v', or make run ARGS=--help.
PKG  ?= ./...
ARGS ?=

TOOL := go tool -modfile=go.tools.mod

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@[[ -t 1 ]] && bold=$$'\033[1m' colour=$$'\033[36m' plain=$$'\033[0m' || bold= colour= plain=; \
	awk -v bold="$$bold" -v colour="$$colour" -v plain="$$plain" 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s%s%s\n", bold, substr($$0, 5), plain } \
		/^[a-z0-9-]+:.*## / { printf "  make %s%-17s%s  %s\n", colour, $$1, plain, $$2 }' $(MAKEFILE_LIST)
	@echo

##@ Develop

.PHONY: run
run: build ## Run the whole product on this machine, until Ctrl-C
	@go build -o bin/ ./hack/devenv ./hack/receiver ./examples/rail
	@go -C hack/oidc build -o "$(CURDIR)/bin/oidc" .
	@assets=$(assets); ln -sfn "$$assets/kubectl" bin/kubectl; KUBEBUILDER_ASSETS=$$assets exec bin/devenv $(ARGS)

.PHONY: generate
generate: ## Generate code, CRDs and the operator's role from the API types and controllers; the chart's files; config/ from the chart
	$(TOOL) controller-gen object applyconfiguration paths=./api/v1alpha1
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	go run ./hack/crdtimes config/crd/bases/*.yaml
	$(TOOL) controller-gen rbac:roleName=merchant-operator,fileName=operator-role.yaml paths=./controllers/... output:rbac:dir=charts/merchant-operator/files
	cp config/crd/bases/*.yaml charts/merchant-operator/files/crds/
	cp config/prometheus/rules.yaml config/prometheus/dashboard.json charts/merchant-operator/files/monitoring/
	cp config/prometheus/refunds/rules.yaml charts/merchant-operator/files/monitoring/refunds.yaml
	go run ./hack/chartschema charts/merchant-operator
	$(TOOL) helm-docs --chart-search-root charts --sort-values-order file --log-level warning
	hack/kustomize.sh

.PHONY: screenshots
screenshots: ## Take the screenshots of the payer's page, the demo bank and the console in docs/images
	@hack/install.sh browser redis
	go run ./test/screenshots
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets go test -count=1 ./test/browser -run 'TestConsole_Screenshot|TestBank_Pay' -screenshots "$(CURDIR)/docs/images"

.PHONY: fmt
fmt: ## Format the Go code
	$(TOOL) golangci-lint fmt

.PHONY: clean
clean: ## Remove bin and dist; keep the cached control plane and Flux
	rm -rf bin dist

##@ Check

# Packages to test at a time. Most tests wait for a server half of their time.
PACKAGES ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

.PHONY: test
test: ## Test the code, with the race detector; PKG and ARGS select some
	@hack/install.sh redis browser proxies nodejs examples compiler
	@assets=$(assets); export KUBEBUILDER_ASSETS=$$assets CGO_ENABLED=1; \
	hack/compile.sh -race $(PKG); \
	echo "==> go test -race $(ARGS) $(PKG)"; \
	go test -race -timeout 20m -p $(PACKAGES) $(ARGS) $(PKG)

.PHONY: test-files
test-files: ## Test the chart, manifests, alerts, dashboard, OpenAPI documents, pages, examples and workflows
	@hack/install.sh redis nodejs examples
	@assets=$(assets); export KUBEBUILDER_ASSETS=$$assets; \
	echo "==> building promtool and Prometheus, which test the alerts and the dashboard (minutes the first time)"; \
	for tool in promtool prometheus; do GOFLAGS="$$(go env GOFLAGS) -tags=remove_all_sd" $(TOOL) $$tool --version >/dev/null; done; \
	hack/compile.sh -C test/verify ./...; \
	echo "==> testing chart, manifests, alerts, dashboard, OpenAPI documents, pages, examples and workflows (minutes)"; \
	go -C test/verify test -count=1 -timeout 20m ./...

.PHONY: test-redis
test-redis: ## Run the suites that start a Redis, on REDIS_SERVER: a path, or "valkey" for Valkey 8
	@server=$${REDIS_SERVER:-redis-server}; [[ $$server != valkey ]] || server=$$(hack/install.sh valkey); \
	hack/install.sh redis; echo "==> the suites that start a Redis, on $$("$$server" --version)"; \
	packages=$$($(redis-packages)); \
	[[ -n $$packages ]] || { echo "no tests import test/redistest" >&2; exit 1; }; \
	$(MAKE) --no-print-directory test PKG="$$packages" REDIS_SERVER="$$server"

# The packages whose tests start a Redis: their test binaries contain test/redistest.
redis-packages = go list -test -f '{{range .Deps}}{{if eq . "'"$$(go list ./test/redistest)"'"}}{{$$.ImportPath}}{{"\n"}}{{end}}{{end}}' ./... \
	| sed -n 's/\.test$$//p' | paste -sd ' '

# For example: make bench NAME=storm ARGS='--streams 20000'. BENCH_SECONDS sets the time of each measurement.
NAME ?= api streams console

.PHONY: bench
bench: build ## Benchmark NAME: api, streams, storm, console, operator, dispatcher, cluster or directory (minutes)
	@hack/install.sh redis
	@go build -o bin/ ./test/bench
	@assets=$(assets); for name in $(NAME); do KUBEBUILDER_ASSETS=$$assets bin/bench $$name $(ARGS); done

COUNT ?= 6
# Packages with code that runs per request or per published object.
HOT := ./api/apikey ./api/published ./internal/clientaddr ./internal/directory ./internal/ratelimit ./internal/session

.PHONY: bench-go
bench-go: ## Run the Go benchmarks COUNT times each, for benchstat
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets go test -run '^$$' -bench . -benchmem -count $(COUNT) $(ARGS) $(HOT)

.PHONY: lint
lint: ## Check style, common mistakes and imports
	$(TOOL) golangci-lint run
	go -C hack/image tool -modfile="$(CURDIR)/go.tools.mod" golangci-lint run
	go -C hack/oidc tool -modfile="$(CURDIR)/go.tools.mod" golangci-lint run
	go -C test/verify tool -modfile="$(CURDIR)/go.tools.mod" golangci-lint run

.PHONY: verify
verify: generate lint test-files ## Run lint and test-files; check that everything is generated, tidy and committed
	go vet ./...
	go mod tidy -diff
	$(TOOL) kustomize build config/default >/dev/null
	$(TOOL) helm lint --quiet charts/merchant-operator
	go -C hack/image test ./...
	go -C hack/image mod tidy -diff
	go -C hack/oidc mod tidy -diff
	go -C test/verify mod tidy -diff
	go -C hack/oasdiff mod tidy -diff
	go -C hack/release/tools tool actionlint -shellcheck= -pyflakes=
	@dirty=$$(git status --porcelain); \
	if [[ -n $$dirty ]]; then \
		printf '\nThese files changed, or are not committed yet:\n%s\n' "$$dirty" >&2; \
		git --no-pager diff --stat >&2; \
		exit 1; \
	fi
	@echo "==> verified"

INTENSITY ?= 2
FUZZTIME  ?= 10s
SOAK      ?= 30m

.PHONY: faults
faults: ## Try to break the promises of docs/guarantees.md; write bin/faults.md; INTENSITY=10 tries longer
	@hack/install.sh redis
	@assets=$(assets); mkdir -p bin; rm -f bin/faults.md; \
	KUBEBUILDER_ASSETS=$$assets go test -tags=faults -count=1 -timeout 60m ./test/faults -run TestFaults $(ARGS) \
		-intensity $(INTENSITY) -table "$(CURDIR)/bin/faults.md" || failed=$$?; \
	[[ ! -f bin/faults.md ]] || { echo; cat bin/faults.md; }; exit $${failed:-0}

.PHONY: soak
soak: ## Drive all roles for SOAK (default 30m), with two failovers; account for every charge, every refund, every cent, and what the roles take
	@hack/install.sh redis examples
	@assets=$(assets); KUBEBUILDER_ASSETS=$$assets go test -tags=faults -count=1 -timeout 0 ./test/faults -run TestSoak -v $(ARGS) -soak $(SOAK)

.PHONY: gitops
gitops: ## Run the product with the real kustomize-controller of Flux; PAGE=yes updates what it compares
	@hack/install.sh redis
	@assets=$(assets); flux=$$(hack/flux/build.sh); \
	KUBEBUILDER_ASSETS=$$assets FLUX_ASSETS=$$flux go test -tags=gitops -count=1 -timeout 20m ./test/gitops -v $(ARGS) $(if $(PAGE),-page)

.PHONY: fuzz
fuzz: ## Fuzz every parser of external input, each for FUZZTIME
	@hack/install.sh redis
	@assets=$(assets); export KUBEBUILDER_ASSETS=$$assets; \
	grep -rHoE '^func Fuzz[A-Za-z]+' --include='*_test.go' api apiserver dispatcher internal | while IFS=: read -r file target; do \
		echo "==> $${target#func } in $$(dirname "$$file")"; \
		go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$${target#func }$$" -fuzztime $(FUZZTIME) </dev/null; \
	done

.PHONY: e2e
e2e: ## Install and test the chart in a real cluster, created for it; needs root or docker
	@test/e2e/run.sh $(ARGS)

##@ Build

.PHONY: build
build: ## Build bin/merchant-operator; link it as the plugin of kubectl
	@echo "==> building bin/merchant-operator $(VERSION) (the first time takes minutes)"
	@go build -ldflags "-X main.version=$(VERSION)" -o bin/merchant-operator .
	@for name in kubectl-merchant kubectl_complete-merchant; do ln -sfn merchant-operator "bin/$$name"; done

.PHONY: build-installer
build-installer: ## Write dist/install.yaml from config/default; IMG sets the image
	@mkdir -p dist/installer
	@image='$(IMG)'; printf '%s\n' 'resources: [../../config/default]' 'images:' '- name: merchant-operator' \
		"  newName: $${image%:*}" "  newTag: '$${image##*:}'" >dist/installer/kustomization.yaml
	@$(TOOL) kustomize build dist/installer >dist/install.yaml
	@rm -r dist/installer
	@echo "==> dist/install.yaml, of the image $(IMG)"

IMAGE ?= merchant-operator:$(VERSION)

.PHONY: image
image: ## Build the container image as bin/image.tar, which docker and containerd load
	@go -C hack/image build -o "$(CURDIR)/bin/image" .
	@bin/image -name $(IMAGE) -version $(VERSION) -output bin/image.tar
	@echo "==> load it with: docker load --input bin/image.tar"

.PHONY: release-rehearsal
release-rehearsal: ## Make a complete release into a temporary local registry
	@hack/release/rehearse.sh

.PHONY: cluster
cluster: ## Create a one-node cluster on this machine; `hack/cluster/run.sh down` removes it; needs root or docker
	@hack/cluster/run.sh up

# The directory of the control plane's binaries, built on first use.
assets = $$(hack/controlplane/build.sh)
