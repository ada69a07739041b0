package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestServerClock(t *testing.T) {
	server := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for desc, tc := range map[string]struct {
		sent, took time.Duration // relative to the server's Date
		header     string
		want       time.Duration
	}{
		"the same time":                   {0, 0, server.Format(http.TimeFormat), 0},
		"in the same second":              {900 * time.Millisecond, 0, server.Format(http.TimeFormat), 0},
		"ahead":                           {time.Hour, 0, server.Format(http.TimeFormat), time.Hour - time.Second},
		"ahead, and the answer took long": {time.Hour, time.Minute, server.Format(http.TimeFormat), time.Hour - time.Second},
		"behind":                          {-time.Hour, 0, server.Format(http.TimeFormat), -time.Hour},
		"an answer that took long":        {-time.Minute, 2 * time.Minute, server.Format(http.TimeFormat), 0},
		"no header":                       {time.Hour, 0, "", 0},
		"no time":                         {time.Hour, 0, "soon", 0},
	} {
		t.Run(desc, func(t *testing.T) {
			now := server.Add(tc.sent)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Date"] = []string{tc.header}
				now = now.Add(tc.took)
			}))
			defer api.Close()
			clock := NewServerClock(func() time.Time { return now })
			config := &rest.Config{Host: api.URL}
			clock.Observe(config)
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Get(api.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if got := clock.Ahead(); got != tc.want {
				t.Errorf("ahead by %s, want %s", got, tc.want)
			}
		})
	}
}
