package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// layerOf is a compressed layer of files, and the digest of it uncompressed.
func layerOf(files []File, created time.Time) (compressed []byte, diffID string, err error) {
	var plain bytes.Buffer
	layer := tar.NewWriter(&plain)
	for _, file := range withDirectories(files) {
		if err := addFile(layer, file, created); err != nil {
			return nil, "", fmt.Errorf("add %s to a layer: %w", file.Path, err)
		}
	}
	if err := layer.Close(); err != nil {
		return nil, "", fmt.Errorf("end a layer: %w", err)
	}
	sum := sha256.Sum256(plain.Bytes())

	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err = zip.Write(plain.Bytes())
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, "", fmt.Errorf("compress a layer: %w", err)
	}
	return packed.Bytes(), "sha256:" + hex.EncodeToString(sum[:]), nil
}

// withDirectories puts the directories above each file before it, all in the order of their paths.
func withDirectories(files []File) []File {
	all := slices.Clone(files)
	known := map[string]bool{}
	for _, file := range files {
		known[file.Path] = true
	}
	for _, file := range files {
		for above := path.Dir(file.Path); above != "/" && !known[above]; above = path.Dir(above) {
			known[above] = true
			all = append(all, File{Path: above, Mode: 0o755, Directory: true})
		}
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

func addFile(layer *tar.Writer, file File, created time.Time) error {
	if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path {
		return errors.New("the path is not an absolute and clean one")
	}
	header := &tar.Header{
		Name:    strings.TrimPrefix(file.Path, "/"),
		Mode:    file.Mode,
		Size:    int64(len(file.Content)),
		ModTime: created.Truncate(time.Second),
	}
	switch {
	case file.Directory:
		header.Typeflag, header.Name, header.Size = tar.TypeDir, header.Name+"/", 0
	case file.Link != "":
		header.Typeflag, header.Linkname, header.Mode, header.Size = tar.TypeSymlink, file.Link, 0o777, 0
	default:
		header.Typeflag = tar.TypeReg
	}
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := layer.Write(file.Content)
	return err
}
