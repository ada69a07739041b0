package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// rawSample is the shipped create script at the end of redis-benchmark: what Redis can do, whoever asks.
type rawSample struct {
	PerSecond  float64 `json:"perSecond"`
	ScriptCost float64 `json:"redisMicrosPerScript"`
}

// rawPipelines are how many scripts redis-benchmark sends before it waits for the answers.
var rawPipelines = [...]int{1, 16} //nolint:gochecknoglobals // a constant

// rawClients are the connections of redis-benchmark.
const rawClients = 50

// measureRaw has redis-benchmark create sessions, each with an id of its own.
func (s *stand) measureRaw(ctx context.Context, pipeline, calls int) (rawSample, error) {
	if err := s.renew(ctx); err != nil {
		return rawSample{}, err
	}
	const placeholder = "__rand_int__" // redis-benchmark puts twelve digits there
	args := []string{
		"-p", strconv.Itoa(s.redisPort), "-c", strconv.Itoa(rawClients), "-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(calls),
		"-r", "1000000000", "--csv",
	}
	session := s.plan.Create.Session
	anew := session[:len(session)-len(placeholder)] + placeholder
	for _, word := range s.plan.Create.Words {
		args = append(args, strings.ReplaceAll(word, session, anew))
	}
	text, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return rawSample{}, fmt.Errorf("redis-benchmark: %w", err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(rows) < 2 || len(rows[1]) < 2 {
		return rawSample{}, fmt.Errorf("redis-benchmark said %q: %w", text, err)
	}
	rate, err := strconv.ParseFloat(rows[1][1], 64)
	if err != nil {
		return rawSample{}, fmt.Errorf("redis-benchmark said %q: %w", text, err)
	}
	cost, err := s.scripts(ctx)
	if err != nil {
		return rawSample{}, err
	}
	return rawSample{rate, cost.micros / float64(max(cost.calls, 1))}, nil
}
