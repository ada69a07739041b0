package delivery

import (
	"errors"
	"net/url"
)

var (
	errBadURL        = errors.New("the URL is not absolute http(s) with a host and without user info")
	errRefusedScheme = errors.New("plain http is not open to webhooks")
)

// parseTarget reads a webhook's URL. The CRD's rules have checked it; what they miss is refused here.
func parseTarget(text string, allowHTTP bool) (*url.URL, error) {
	target, err := url.Parse(text)
	if err != nil || target.Hostname() == "" || target.User != nil || target.Opaque != "" {
		return nil, errBadURL // url.Parse would quote the URL, and with it a token in its query
	}
	switch {
	case target.Scheme == "https", target.Scheme == "http" && allowHTTP:
		return target, nil
	case target.Scheme == "http":
		return nil, errRefusedScheme
	}
	return nil, errBadURL
}
