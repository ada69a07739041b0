package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Read returns the images of an archive that Write, or `docker save` since version 25, has written. It checks every
// digest it follows, so that an image which reads well also loads. What is not for any platform is left out:
// build tools keep attestations there.
func Read(r io.Reader) ([]Image, error) {
	content, err := untar(r)
	if err != nil {
		return nil, fmt.Errorf("read an archive of images: %w", err)
	}
	var top index
	if err := json.Unmarshal(content["index.json"], &top); err != nil {
		return nil, fmt.Errorf("read index.json of an archive of images: %w", err)
	}
	return content.images(top)
}

// blobs are the files of a layout by their path.
type blobs map[string][]byte

func (b blobs) images(list index) ([]Image, error) {
	var images []Image
	for _, entry := range list.Manifests {
		if entry.Platform != nil && entry.Platform.OS == "unknown" {
			continue
		}
		if entry.MediaType == typeIndex {
			var nested index
			if err := b.decode(entry, &nested); err != nil {
				return nil, err
			}
			more, err := b.images(nested)
			if err != nil {
				return nil, err
			}
			images = append(images, more...)
			continue
		}
		image, err := b.image(entry)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}

func (b blobs) image(entry descriptor) (Image, error) {
	var one manifest
	var config configuration
	if err := errors.Join(b.decode(entry, &one), b.decode(one.Config, &config)); err != nil {
		return Image{}, err
	}
	image := Image{Platform: config.Platform, Config: config.Config}
	for _, layer := range one.Layers {
		files, err := b.layer(layer)
		if err != nil {
			return Image{}, fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		image.Files = append(image.Files, files...)
	}
	return image, nil
}

func (b blobs) layer(entry descriptor) ([]File, error) {
	content, err := b.get(entry)
	if err != nil {
		return nil, err
	}
	var plain io.Reader = bytes.NewReader(content)
	if bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		if plain, err = gzip.NewReader(plain); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	var files []File
	for layer := tar.NewReader(plain); ; {
		header, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		file := File{
			Path: path.Clean("/" + header.Name), Mode: header.Mode, Link: header.Linkname,
			Directory: header.Typeflag == tar.TypeDir,
		}
		if file.Content, err = io.ReadAll(layer); err != nil {
			return nil, fmt.Errorf("read %s: %w", header.Name, err)
		}
		files = append(files, file)
	}
}

func (b blobs) decode(entry descriptor, into any) error {
	content, err := b.get(entry)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("decode %s: %w", entry.Digest, err)
	}
	return nil
}

func (b blobs) get(entry descriptor) ([]byte, error) {
	content, ok := b[blobPath(entry.Digest)]
	if !ok {
		return nil, fmt.Errorf("the archive has no blob %q", entry.Digest)
	}
	if sum := sha256.Sum256(content); "sha256:"+hex.EncodeToString(sum[:]) != entry.Digest {
		return nil, fmt.Errorf("blob %s has another digest", entry.Digest)
	}
	return content, nil
}

func untar(r io.Reader) (blobs, error) {
	content := blobs{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return content, nil
		}
		if err != nil {
			return nil, err
		}
		if content[strings.TrimPrefix(header.Name, "./")], err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("read %s: %w", header.Name, err)
		}
	}
}
