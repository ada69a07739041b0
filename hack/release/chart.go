package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

// packageChart writes an archive of the chart in source, as `helm package` does, and returns its path. The chart has the
// version of the product, and installs the image with that tag. The files in source stay as they are.
func packageChart(source, version, directory string, when time.Time) (string, error) {
	chart, err := loader.LoadDir(source)
	if err != nil {
		return "", fmt.Errorf("load the chart: %w", err)
	}
	chart.Metadata.Version = version
	chart.Metadata.AppVersion = version
	path, err := chartutil.Save(chart, directory)
	if err != nil {
		return "", fmt.Errorf("package the chart: %w", err)
	}
	archive, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	dated, err := dated(archive, when)
	if err != nil {
		return "", fmt.Errorf("date the files in %s: %w", path, err)
	}
	return path, os.WriteFile(path, dated, 0o644)
}

// dated returns an archive whose files are all of one time. Helm gives them the time it packages them at; without that
// the same commit gives the same archive, and anybody can tell whether a released chart is of its sources.
func dated(archive []byte, when time.Time) ([]byte, error) {
	unzip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	zip.Header = unzip.Header // Helm marks its archives there
	from, to := tar.NewReader(unzip), tar.NewWriter(zip)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			err := errors.Join(to.Close(), zip.Close())
			return out.Bytes(), err
		}
		if err != nil {
			return nil, err
		}
		header.ModTime = when
		if err := to.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(to, from); err != nil {
			return nil, err
		}
	}
}

// commitTime is the last commit's, so that the same commit is packaged and described with the same times.
func commitTime(ctx context.Context) (time.Time, error) {
	text, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%cI").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask git for the time of the commit: %w", err)
	}
	return time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
}
