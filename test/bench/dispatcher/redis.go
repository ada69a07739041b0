package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// openRedis connects to a server twice: to make events, as the API does, and to ask it what it has done.
func (s *stand) openRedis(ctx context.Context, server *redistest.Server) error {
	var err error
	if s.store, err = store.Open(store.Options{URL: server.URL(), Timeout: process.Patience}); err != nil {
		return err
	}
	s.onStop(s.store.Close)
	s.client = redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, ReadTimeout: process.Patience})
	s.onStop(s.client.Close)
	fields, err := s.info(ctx, "server")
	if err != nil {
		return err
	}
	s.redisPID, err = strconv.Atoi(fields["process_id"])
	return err
}

// info is a section of what Redis says of itself.
func (s *stand) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields, nil
}

// work is what Redis has done since it was started.
type work struct {
	// scripts it was asked to run, the µs they took, and the commands in them and besides.
	scripts, scriptMicros, commands float64
}

func (s *stand) redisWork(ctx context.Context) (work, error) {
	fields, err := s.info(ctx, "commandstats")
	if err != nil {
		return work{}, err
	}
	var done work
	for name, statistics := range fields {
		var calls, micros float64
		if _, err := fmt.Sscanf(statistics, "calls=%f,usec=%f", &calls, &micros); err != nil {
			return work{}, fmt.Errorf("not a statistic: %q", statistics)
		}
		done.commands += calls
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			done.scripts += calls
			done.scriptMicros += micros
		}
	}
	return done, nil
}
