package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// series is one value of a page of metrics.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	lineForm  = regexp.MustCompile(`^([a-z_:]+)(?:\{(.*)\})? (\S+)$`)
	labelForm = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// parseMetrics reads those of some names. Values of labels that hold quotes are cut short; none of those is looked at.
func parseMetrics(text string, names ...string) ([]series, error) {
	var found []series
	for line := range strings.Lines(text) {
		parts := lineForm.FindStringSubmatch(strings.TrimSpace(line))
		if len(parts) == 0 || !slices.Contains(names, parts[1]) {
			continue
		}
		value, err := strconv.ParseFloat(parts[3], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", parts[1], err)
		}
		one := series{name: parts[1], labels: map[string]string{}, value: value}
		for _, label := range labelForm.FindAllStringSubmatch(parts[2], -1) {
			one.labels[label[1]] = label[2]
		}
		found = append(found, one)
	}
	return found, nil
}

// get reads a page.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return string(text), err
}
