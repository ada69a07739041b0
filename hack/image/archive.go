package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a regular file of an image. It belongs to root.
type file struct {
	path    string // absolute
	mode    int64
	content []byte
}

// newImage makes an image of one layer. The same arguments give the same digest.
func newImage(platform v1.Platform, created time.Time, config v1.Config, files []file) (v1.Image, error) {
	content, err := archiveLayer(files, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	created = created.UTC()
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: v1.Time{Time: created}, Config: config,
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("configure an image: %w", err)
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "hack/image"},
	})
}

// archiveLayer archives files, and the directories above them, in the order of their paths.
func archiveLayer(files []file, modified time.Time) ([]byte, error) {
	headers := map[string]*tar.Header{}
	contents := map[string][]byte{}
	for _, one := range files {
		headers[one.path[1:]] = &tar.Header{Typeflag: tar.TypeReg, Mode: one.mode, Size: int64(len(one.content))}
		contents[one.path[1:]] = one.content
		for directory := path.Dir(one.path); directory != "/"; directory = path.Dir(directory) {
			headers[directory[1:]+"/"] = &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}
		}
	}
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		header := headers[name]
		header.Name, header.ModTime = name, modified.Truncate(time.Second)
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(contents[name]); err != nil {
			return nil, err
		}
	}
	return layer.Bytes(), writer.Close()
}

// writeArchive writes an OCI layout of images, one for each platform, under one name. docker and containerd load it.
func writeArchive(target, imageName string, images ...v1.Image) error {
	tag, err := name.NewTag(imageName)
	if err != nil {
		return err
	}
	fullName := tag.Name()
	if tag.RegistryStr() == name.DefaultRegistry { // containerd and the kubelet say docker.io
		fullName = strings.TrimPrefix(fullName, "index.")
	}
	var platforms v1.ImageIndex = empty.Index
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		platforms = mutate.AppendManifests(platforms, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	directory, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	files, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}
	if err := files.AppendIndex(platforms, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          fullName,
		"org.opencontainers.image.ref.name": tag.TagStr(),
	})); err != nil {
		return err
	}
	return archive(target, os.DirFS(directory))
}

// archive leaves out what depends on the machine: owners and times.
func archive(target string, files fs.FS) (err error) {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(out)
	defer func() { err = errors.Join(err, writer.Close(), out.Close()) }()
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = writer.Write(content)
		return err
	})
}

// content is the configuration of an image, and its files by path.
type content struct {
	config *v1.ConfigFile
	files  map[string]file
}

// readArchive returns the images of an archive of writeArchive, or of `docker save` since version 25, which CI uses for the Dockerfile. It checks every digest.
func readArchive(archivePath string) (contents []content, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read %s: %w", archivePath, err)
		}
	}()
	directory, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if output, err := exec.Command("tar", "-xf", archivePath, "-C", directory).CombinedOutput(); err != nil { //nolint:noctx // it is short
		return nil, fmt.Errorf("unpack: %w: %s", err, output)
	}
	if err := checkBlobs(filepath.Join(directory, "blobs", "sha256")); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		return nil, err
	}
	images, err := listImages(index)
	for _, image := range images {
		one, readErr := readImage(image)
		contents, err = append(contents, one), errors.Join(err, readErr)
	}
	return contents, err
}

// checkBlobs compares blobs with their names, which are their digests. The packages layout and validate do not.
func checkBlobs(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		blob, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return err
		}
		if digest := checksum(blob)[0].Value; digest != entry.Name() {
			return fmt.Errorf("blob %s has the digest %s", entry.Name(), digest)
		}
	}
	return nil
}

// listImages also finds those in nested indexes.
func listImages(index v1.ImageIndex) (all []v1.Image, err error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, entry := range manifest.Manifests {
		if !entry.MediaType.IsIndex() {
			image, err := index.Image(entry.Digest)
			if err != nil {
				return nil, err
			}
			all = append(all, image)
			continue
		}
		nested, err := index.ImageIndex(entry.Digest)
		if err != nil {
			return nil, err
		}
		more, err := listImages(nested)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func readImage(image v1.Image) (content, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return content{}, err
	}
	out := content{config, map[string]file{}}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	for reader := tar.NewReader(files); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return content{}, err
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			return content{}, err
		}
		location := path.Clean("/" + header.Name)
		out.files[location] = file{location, header.Mode, text}
	}
}
