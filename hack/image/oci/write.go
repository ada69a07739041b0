package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Write writes an archive of images, one for each platform, under one name such as
// "docker.io/library/merchant-operator:v1.2.3".
func Write(w io.Writer, name string, images []Image) error {
	repository, tag, ok := splitName(name)
	if !ok || len(images) == 0 {
		return fmt.Errorf("write image %q: it wants a name like host/repository:tag and at least one platform", name)
	}
	archive := &archive{tar: tar.NewWriter(w), written: map[string]bool{}}
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	var docker []dockerManifest
	for _, image := range images {
		described, err := archive.image(image)
		if err != nil {
			return fmt.Errorf("write image %s for %s: %w", name, image.Platform, err)
		}
		all.Manifests = append(all.Manifests, described.manifest)
		// An old docker knows one platform to a name; it gets the first.
		if docker == nil {
			docker = []dockerManifest{{
				Config:   blobPath(described.config.Digest),
				RepoTags: []string{strings.TrimPrefix(repository, "docker.io/library/") + ":" + tag},
				Layers:   []string{blobPath(described.layer.Digest)},
			}}
		}
	}
	nested, err := archive.json(typeIndex, all)
	if err != nil {
		return err
	}
	nested.Annotations = map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": tag,
	}
	return errors.Join(
		archive.file("index.json", index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{nested}}),
		archive.file("manifest.json", docker),
		archive.file("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}),
		archive.tar.Close(),
	)
}

// splitName parts a name at its tag.
func splitName(name string) (repository, tag string, ok bool) {
	at := strings.LastIndexByte(name, ':')
	if at <= 0 || strings.ContainsRune(name[at:], '/') || at == len(name)-1 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

// archive is a layout that is being written.
type archive struct {
	tar     *tar.Writer
	written map[string]bool
}

type described struct{ manifest, config, layer descriptor }

func (a *archive) image(image Image) (described, error) {
	compressed, diffID, err := layerOf(image.Files, image.Created)
	if err != nil {
		return described{}, err
	}
	layer, err := a.blob(typeLayer, compressed)
	if err != nil {
		return described{}, err
	}
	created := image.Created.UTC().Format(time.RFC3339)
	config, err := a.json(typeConfig, configuration{
		Created:  created,
		Platform: image.Platform,
		Config:   image.Config,
		RootFS:   rootFS{Type: "layers", DiffIDs: []string{diffID}},
		Past:     []history{{Created: created, CreatedBy: "hack/image"}},
	})
	if err != nil {
		return described{}, err
	}
	one, err := a.json(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: config, Layers: []descriptor{layer},
	})
	one.Platform = &image.Platform
	return described{manifest: one, config: config, layer: layer}, err
}

func (a *archive) json(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, fmt.Errorf("encode a %s: %w", mediaType, err)
	}
	return a.blob(mediaType, content)
}

func (a *archive) blob(mediaType string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	blob := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
	if a.written[blob.Digest] {
		return blob, nil
	}
	a.written[blob.Digest] = true
	return blob, a.add(blobPath(blob.Digest), content)
}

func (a *archive) file(name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return a.add(name, content)
}

func (a *archive) add(name string, content []byte) error {
	if err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	if _, err := io.Copy(a.tar, bytes.NewReader(content)); err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	return nil
}

func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
