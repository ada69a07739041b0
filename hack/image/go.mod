// The tool that makes and checks container images. A module of its own, so that its dependencies do not reach the
// product, and a new version of a tool in hack/release/tools does not change the bytes of an image.
module github.com/merchant-operator/merchant-operator/hack/image

go 1.26.0

require (
	github.com/google/go-containerregistry v0.22.1 // makes and reads container images
	github.com/spdx/tools-golang v0.5.7 // writes the SBOMs of a release
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d // Mozilla's certificate authorities, for the image
)

require (
	github.com/anchore/go-struct-converter v0.1.0 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	golang.org/x/sync v0.22.0 // indirect
)
