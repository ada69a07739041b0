package payer

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// AssetPrefix is the path of the page's assets. A name has a hash of the content, so that an asset can be cached for ever.
const AssetPrefix = "/pay/static/"

// Asset is a file that a page loads.
type Asset struct {
	// Path has a hash of the content.
	Path        string
	ContentType string
	Content     []byte
	// Gzipped is the content as gzip; nil: it was not compressed.
	Gzipped []byte
}

func newAsset(extension, contentType string, content []byte) (Asset, error) {
	sum := sha256.Sum256(content)
	const digits = 12
	asset := Asset{
		Path:        AssetPrefix + "page-" + hex.EncodeToString(sum[:])[:digits] + extension,
		ContentType: contentType, Content: content,
	}
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return Asset{}, err
	}
	if _, err := writer.Write(content); err != nil {
		return Asset{}, fmt.Errorf("compress %s: %w", asset.Path, err)
	}
	if err := writer.Close(); err != nil {
		return Asset{}, fmt.Errorf("compress %s: %w", asset.Path, err)
	}
	asset.Gzipped = compressed.Bytes()
	return asset, nil
}

// newScript joins the files of the page's script: no browser has to load a second one.
func newScript() (Asset, error) {
	var script []byte
	for _, name := range []string{"statusclient.js", "page.js"} {
		content, err := files.ReadFile(name)
		if err != nil {
			return Asset{}, err
		}
		script = append(script, content...)
	}
	return newAsset(".js", "text/javascript; charset=utf-8", script)
}

// Asset returns the asset of a name and an accent color, as its page asked for them. current reports whether the name has the hash of
// the content: while replicas are replaced, a page may come from one of another version, and must not lose its style.
func (p *Pages) Asset(name, accent string) (asset Asset, current, found bool) {
	switch {
	case strings.HasSuffix(name, ".css"):
		asset = p.style.base
		if accent != "" {
			asset, found = p.style.with("#" + accent)
			if !found {
				return Asset{}, false, false
			}
		}
	case strings.HasSuffix(name, ".js") && accent == "":
		asset = p.script
	default:
		return Asset{}, false, false
	}
	return asset, asset.Path == AssetPrefix+name, strings.HasPrefix(name, "page-")
}
