# Writes at random places of one file, with fsync after 1,000 writes.
set $dir=/tmp
set $nthreads=1
set $iosize=8k
set $filesize=256m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop write name=rwrite1,filesetname=bigfileset,iosize=$iosize,random,iters=1000
    flowop fsync name=sync1,filesetname=bigfileset
  }
}
run 60
