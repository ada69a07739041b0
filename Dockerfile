# syntax=docker/dockerfile:1

# Compiled on the builder's own platform, for the one that is asked for.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION=devel
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /merchant-operator .

# No shell, no package manager: the binary, and the certificate authorities that webhooks and Redis over TLS need.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /merchant-operator /merchant-operator
# By number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/merchant-operator"]
