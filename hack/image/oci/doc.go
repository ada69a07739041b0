// Package oci writes and reads archives of container images that hold nothing but a few files: no base image, hence
// no registry, no daemon and no root. What it writes is an OCI image layout (image-spec v1.1) in a tar file, with one
// image for each platform, which `docker load`, `ctr images import`, podman, buildah and skopeo all take. The same
// files and the same time give the same bytes.
package oci
