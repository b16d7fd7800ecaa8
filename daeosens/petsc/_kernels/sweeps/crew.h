/* Threads that wait for work without the interpreter: to wake one through Python takes longer than
   many a sweep. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

enum { MOST_THREADS = 64 };
static const long PATIENCE = 1000000; /* nanoseconds that a thread is awake for the next work */
#define CLOSED (1L << 32)

typedef void (*Work)(void *context, long worker);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t called;
    pthread_t threads[MOST_THREADS];
    long count;    /* of the threads that there are */
    long summons;  /* how often they were to wake */
    long calls;    /* how often there was work */
    long entered;  /* threads that have come to the work under way; from CLOSED on it is over */
    long finished; /* those that have left it */
    long wanted;   /* workers, the caller among them */
    Work work;
    void *context;
    int busy;
    int kept_off; /* the core that the threads do not run on */
    long told;    /* how many of them know that core */
} crew = {.lock = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER, .entered = CLOSED};

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* wait for another call than the one of this number, up to the end of patience */
static void await_call(long seen)
{
    const long end = nanoseconds() + PATIENCE;
    for (int turn = 1; __atomic_load_n(&crew.calls, __ATOMIC_ACQUIRE) == seen; turn++) {
        pause_briefly();
        if (turn % 64 == 0 && nanoseconds() > end) return;
    }
}

static void *serve(void *unused)
{
    long summons = 0, calls = 0;
    sigset_t all; /* signals are the interpreter's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (;;) {
        pthread_mutex_lock(&crew.lock);
        while (crew.summons == summons && __atomic_load_n(&crew.calls, __ATOMIC_ACQUIRE) == calls)
            pthread_cond_wait(&crew.called, &crew.lock);
        summons = crew.summons;
        pthread_mutex_unlock(&crew.lock);
        await_call(calls);
        const long call = __atomic_load_n(&crew.calls, __ATOMIC_ACQUIRE);
        if (call == calls) continue;
        calls = call;
        const long ticket = __atomic_fetch_add(&crew.entered, 1, __ATOMIC_ACQ_REL);
        if (ticket >= CLOSED) continue; /* too late: the others have done it */
        if (ticket + 1 < crew.wanted) crew.work(crew.context, ticket + 1);
        __atomic_fetch_add(&crew.finished, 1, __ATOMIC_RELEASE);
    }
    return unused;
}

/* a fork has none of the threads */
static void forget_threads(void)
{
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.called, NULL);
    crew.count = crew.told = crew.busy = 0;
    crew.entered = CLOSED;
}

static void keep_off_this_core(void)
{
#if defined(__linux__)
    /* Linux takes idle cores of virtual machines for busy ones: a thread would wake on the core of
       the one that woke it, and wait there for milliseconds.  Where containers forbid to choose
       there are only longer waits. */
    cpu_set_t others;
    const int core = sched_getcpu();
    if (crew.told == crew.count && core == crew.kept_off) return;
    if (core < 0 || core >= CPU_SETSIZE) return;
    if (sched_getaffinity(0, sizeof others, &others) || !CPU_ISSET(core, &others)) return;
    CPU_CLR(core, &others);
    if (!CPU_COUNT(&others)) return;
    for (long k = 0; k < crew.count; k++)
        pthread_setaffinity_np(crew.threads[k], sizeof others, &others);
    crew.kept_off = core, crew.told = crew.count;
#endif
}

/* Wake so many threads: there will be work within a millisecond. */
static void summon(long threads)
{
    static int forks_are_seen;
    if (!forks_are_seen) forks_are_seen = !pthread_atfork(NULL, NULL, forget_threads);
    while (crew.count < threads && crew.count < MOST_THREADS) {
        if (pthread_create(&crew.threads[crew.count], NULL, serve, NULL)) break;
        pthread_detach(crew.threads[crew.count++]);
    }
    keep_off_this_core();
    pthread_mutex_lock(&crew.lock);
    crew.summons++;
    pthread_cond_broadcast(&crew.called);
    pthread_mutex_unlock(&crew.lock);
}

/* Let so many workers, this thread the first of them, do work(context, worker) at the same time; a
   worker that is not awake before the others have finished does not come.  Returns how many came. */
static long together(Work work, void *context, long workers)
{
    if (workers < 2 || __atomic_exchange_n(&crew.busy, 1, __ATOMIC_ACQUIRE)) {
        work(context, 0);
        return 1;
    }
    crew.work = work, crew.context = context, crew.wanted = workers;
    crew.finished = 0;
    __atomic_store_n(&crew.entered, 0, __ATOMIC_RELEASE);
    __atomic_fetch_add(&crew.calls, 1, __ATOMIC_RELEASE);
    summon(workers - 1);
    work(context, 0);
    const long entered = __atomic_fetch_or(&crew.entered, CLOSED, __ATOMIC_ACQ_REL);
    for (long turn = 1; __atomic_load_n(&crew.finished, __ATOMIC_ACQUIRE) != entered; turn++) {
        pause_briefly();
        if (turn % 1024 == 0) sched_yield(); /* more threads than cores */
    }
    __atomic_store_n(&crew.busy, 0, __ATOMIC_RELEASE);
    return 1 + (entered < workers - 1 ? entered : workers - 1);
}

/* the next of several pieces that workers share: from the number that is returned on */
static inline long next_piece(long *next, long several)
{
    return __atomic_fetch_add(next, several, __ATOMIC_RELAXED);
}
