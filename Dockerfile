# syntax=docker/dockerfile:1

# Cross-compiled on the platform of the builder.
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

# Only the binary and the certificate authorities, for TLS to webhooks and Redis.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /merchant-operator /merchant-operator
# A number, so that Kubernetes can verify that it is not root.
USER 65532:65532
ENTRYPOINT ["/merchant-operator"]
